"""Freeze patterns that match the wrong parameters."""

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision_model, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision_model(x)).square().mean()}


def _program(model, trainable, **more):
    declare = debugkit.Declare(trainable=trainable)
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "declare": declare, **more}


def tower_renamed_since_the_freeze_was_written():
    model = Policy()
    for name, parameter in model.named_parameters():
        if "vision_tower" in name:
            parameter.requires_grad_(False)
    expect = {"module": "vision_model", "severity": "error", "message": "2 parameters are trainable but not declared"}
    return _program(model, ("head.*",), expect=expect)


def declared_head_is_frozen_too():
    model = Policy().requires_grad_(False)
    model.head.weight.requires_grad_(True)
    return _program(model, ("head.*",), expect={"parameter": "head.bias", "message": "declared trainable but frozen"})


def pattern_that_matches_nothing():
    model = Policy()
    model.vision_model.requires_grad_(False)
    return _program(
        model,
        ("head.*", "action_head.*"),
        expect={"message": "The pattern `action_head.*` in `Declare(trainable=…)` matches no"},
    )


def adapters_that_the_library_names_otherwise():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(Policy(), LoraConfig(target_modules=["vision_model"]))
    return _program(model, ("*.lora.*",), expect={"count": 2})

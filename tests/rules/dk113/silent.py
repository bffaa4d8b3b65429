"""Models in which exactly the declared parameters train."""

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


def _program(model, trainable, **more):
    declare = None if trainable is None else debugkit.Declare(trainable=trainable)
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "declare": declare, **more}


def frozen_tower():
    model = Policy()
    model.vision.requires_grad_(False)
    return _program(model, ("head.*",))


def everything():
    return _program(Policy(), ("*",))


def lora():
    from peft import LoraConfig, get_peft_model

    return _program(get_peft_model(Policy(), LoraConfig(target_modules=["vision"])), ("*.lora_A.*", "*.lora_B.*"))


def tied_head_declared_by_its_second_name():
    model = Policy()
    model.other = nn.Linear(4, 3)
    model.other.weight, model.other.bias = model.head.weight, model.head.bias
    model.vision.requires_grad_(False)
    return _program(model, ("other.*",))


def compiled_model():
    model = torch.compile(Policy(), backend="eager")
    model.vision.requires_grad_(False)
    return _program(model, ("head.*",))


def nothing_declared():
    return _program(Policy(), None, expect={"not_examined": "not declared"})

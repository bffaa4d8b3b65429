"""Freeze patterns that match the wrong parameters, and assignments that freeze nothing."""

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


def _trained(model, of=None, **more):
    """The arguments of check() with an optimizer, or of watch() with a loop."""
    optimizer = torch.optim.SGD((of or model).parameters(), lr=0.1)
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer, **more}


def _loop(model, optimizer):
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(5, 3))["loss"].backward()
        optimizer.step()


def attribute_of_a_module():
    model = Policy()
    model.vision_model.requires_grad = False  # DK113
    return _trained(model, expect={"module": "vision_model", "severity": "error", "message": "still trained"})


def attribute_of_a_module_in_a_loop():
    model = Tower()
    model.tower.requires_grad = False  # DK113
    expect = {"module": "tower", "severity": "error", "message": "`tower.requires_grad` was set to False"}
    return _trained(model, loop=_loop, expect=expect)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
        self.action_head = nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.action_head(self.tower(x)).square().mean()}


def each_child_of_a_module():
    model = Tower()
    for part in model.tower.children():
        part.requires_grad = False  # DK113
    expect = {"module": "tower", "severity": "error", "message": "4 parameters are still trained"}
    return _trained(model, loop=_loop, expect=expect)


def method_of_each_parameter_replaced():
    model = Tower()
    for parameter in model.tower.parameters():
        parameter.requires_grad_ = False  # DK113
    expect = {"module": "tower", "parameter": "tower.0.weight", "message": "does not call it: 4 parameters are still"}
    return _trained(model, loop=_loop, expect=expect)


def method_of_a_module_replaced():
    model = Tower()
    model.tower.requires_grad_ = False  # DK113
    return {
        "model": model,
        "batch": {"x": torch.randn(5, 3)},
        "expect": {"module": "tower", "severity": "warning", "message": "4 parameters are still trainable"},
    }


def thawed_by_an_attribute():
    model = Tower()
    for parameter in model.parameters():
        parameter.requires_grad = False
    model.action_head.requires_grad_(True)
    model.tower[2].requires_grad = True  # an index: the line is not named
    expect = {"module": "tower.2", "severity": "warning", "message": "2 parameters are still frozen"}
    return _trained(model, loop=_loop, expect=expect)

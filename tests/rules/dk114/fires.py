"""Checkpoints that were not loaded completely."""

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision_tower = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision_tower(x)).square().mean()}


def _program(model, checkpoint, fresh=(), **expect):
    declare = debugkit.Declare(checkpoint=checkpoint, fresh=fresh)
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "declare": declare, "expect": {**expect}}


def prefix_that_fits_nothing_and_strict_is_off():
    pretrained, model = Policy(), Policy()
    saved = {f"vision_model.{name}": tensor for name, tensor in pretrained.vision_tower.state_dict().items()}
    model.load_state_dict(saved, strict=False)
    message = "Their names begin with `vision_model.`, those in the model begin with `vision_tower.`"
    return _program(model, saved, ("head.*",), module="vision_tower", severity="error", message=message)


def load_error_that_was_swallowed():
    saved = Policy().state_dict()
    model = Policy()
    return _program(model, saved, module="", message="of 8 tensors do not have the checkpoint's values")


def head_of_another_size():
    saved = Policy().state_dict() | {"head.weight": torch.randn(7, 4), "head.bias": torch.randn(7)}
    model = Policy()
    model.load_state_dict({name: tensor for name, tensor in saved.items() if "head" not in name}, strict=False)
    return _program(model, saved, module="head", message="2 of 8 checkpoint tensors match no tensor of the model")


def head_not_declared_fresh():
    saved = {name: tensor for name, tensor in Policy().state_dict().items() if "head" not in name}
    model = Policy()
    model.load_state_dict(saved, strict=False)
    return _program(model, saved, module="head", message="2 tensors of the model are not in the checkpoint")


def initialised_again_after_loading():
    saved, model = Policy().state_dict(), Policy()
    model.load_state_dict(saved)
    model.vision_tower[2].reset_parameters()
    return _program(model, saved, module="vision_tower.2", message="2 of 8")

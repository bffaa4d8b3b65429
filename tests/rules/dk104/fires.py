"""Parameters that a step updates twice."""

import warnings

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


def _program(model, optimizer, **more):
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer, **more}


def listed_twice_in_one_group():
    model = Policy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns here, once, in the middle of a start-up log
        optimizer = torch.optim.SGD([*model.parameters(), model.head.weight], lr=0.1)
    return _program(model, optimizer, expect={"parameter": "head.weight", "severity": "error"})


def added_to_a_group_by_hand():
    model = Policy()
    optimizer = torch.optim.SGD([{"params": model.vision.parameters()}, {"params": model.head.parameters()}], lr=0.1)
    optimizer.param_groups[0]["params"].append(model.head.bias)
    return _program(model, optimizer, expect={"parameter": "head.bias", "message": "SGD group 0 and SGD group 1"})


def head_in_two_optimizers():
    model = Policy()
    optimizers = [torch.optim.AdamW(model.parameters()), torch.optim.SGD(model.head.parameters(), lr=0.1)]
    return _program(model, optimizers, expect={"severity": "warning", "message": "2 parameters are in two optimizers"})


def two_optimizers_in_turns():
    def loop(model, optimizer):
        for _ in range(3):
            for each in optimizer:
                each.zero_grad()
                model(torch.randn(5, 3))["loss"].backward()
                each.step()

    model = Policy()
    optimizers = [torch.optim.AdamW(model.parameters()), torch.optim.SGD(model.head.parameters(), lr=0.1)]
    return _program(model, optimizers, loop=loop, expect={"severity": "warning"})

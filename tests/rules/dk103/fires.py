"""Optimizers and groups without anything to train."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


def _program(model, optimizer, **more):
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer, **more}


def everything_frozen():
    model = Policy().requires_grad_(False)
    return _program(model, torch.optim.AdamW(model.parameters()), expect={"message": "All 6", "severity": "error"})


def optimizer_of_the_frozen_tower_only():
    model = Policy()
    model.vision.requires_grad_(False)
    return _program(model, torch.optim.AdamW(model.vision.parameters()), expect={"message": "All 4"})


def group_whose_pattern_matches_nothing():
    model = Policy()
    backbone = [p for name, p in model.named_parameters() if name.startswith("backbone")]
    groups = [{"params": model.head.parameters()}, {"params": backbone, "lr": 1e-5}]
    expect = {"message": "AdamW group 1 is empty, and 4 parameters", "severity": "error"}
    return _program(model, torch.optim.AdamW(groups), expect=expect)


def frozen_at_the_optimizers_own_step():
    def loop(model, optimizer):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(5, 3))["loss"].backward()
            optimizer.step()

    model = Policy()
    model.vision.requires_grad_(False)
    optimizer = torch.optim.SGD(model.vision.parameters(), lr=0.1)  # DK103
    return _program(model, optimizer, loop=loop, expect={"message": "All 4"})

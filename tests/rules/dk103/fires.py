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


def no_decay_group_of_names_that_the_model_lacks():
    model = Policy()
    plain = [p for name, p in model.named_parameters() if name.endswith(("gamma", "beta"))]
    decay = [p for name, p in model.named_parameters() if not name.endswith(("gamma", "beta"))]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    expect = {"message": "AdamW group 1 has a weight decay of 0 and is empty. 3 parameters", "severity": "info"}
    return _program(model, torch.optim.AdamW(groups), expect=expect)


def norms_under_another_name():
    model = nn.Sequential(nn.Linear(3, 8, bias=False), nn.RMSNorm(8), nn.Tanh(), nn.Linear(8, 2, bias=False))
    skip = ("bias", "LayerNorm.weight")
    plain = [p for name, p in model.named_parameters() if name.endswith(skip)]
    decay = [p for name, p in model.named_parameters() if not name.endswith(skip)]
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": decay, "weight_decay": 0.1}]
    optimizer = torch.optim.NAdam(groups, lr=1e-3)  # DK103

    def loop(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "1 parameter of one dimension"}}

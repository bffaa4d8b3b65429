"""Runs whose loss diverges."""

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))


def _train(model, optimizer, steps=16, bad_from=None):
    for step in range(steps):
        state = torch.randn(16, 3)
        if bad_from is not None and step >= bad_from:
            state[0, 0] = float("nan")
        optimizer.zero_grad()
        (model(state) - state[:, :2]).square().mean().backward()
        optimizer.step()


def learning_rate_beyond_stability():
    model = nn.Linear(3, 2)
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=3.0),
        "loop": lambda model, optimizer: _train(model, optimizer, steps=24),
        "expect": {"severity": "warning", "message": "more than 50 times its initial value"},
    }


def adam_whose_rate_was_meant_for_another_unit():
    model = _policy()
    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), lr=30.0),
        "loop": _train,
        "expect": {"severity": "warning", "message": "times its initial value"},
    }


def nan_from_a_bad_sample_on():
    model = _policy()
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=1e-2),
        "loop": lambda model, optimizer: _train(model, optimizer, bad_from=6),
        "expect": {"severity": "error", "message": "not been finite since step 6"},
    }

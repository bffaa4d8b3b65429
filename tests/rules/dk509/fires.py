"""Learning rates at which the loss does not fall."""

import torch
from torch import nn


def _arguments(make, **expect):
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    return {
        "model": model,
        "batch": {"state": torch.randn(12, 4), "action": torch.randn(12, 2)},
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"]).square().mean(),
        "optimizer": make(model.parameters()),
        "expect": expect,
    }


def zero():
    build = lambda p: torch.optim.AdamW(p, lr=0.0)  # noqa: E731  # DK509
    return _arguments(build, severity="error", message="is 0, and no scheduler")


def far_too_high():
    build = lambda p: torch.optim.SGD(p, lr=30.0)  # noqa: E731  # DK509
    return _arguments(build, severity="warning", message="at a hundredth")


def far_too_high_for_adam():
    return _arguments(lambda p: torch.optim.Adam(p, lr=3.0), severity="warning")


def far_too_low():
    """At 1e6 times the rate the loss falls."""
    return _arguments(lambda p: torch.optim.Adam(p, lr=1e-9), message="times the rate", severity="warning")

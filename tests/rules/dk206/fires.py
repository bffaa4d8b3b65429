"""Learning rates that replace the weights, or hardly change them."""

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))


def _train(model, optimizer, steps=30, factor=1.0):
    for _ in range(steps):
        optimizer.zero_grad()
        state = torch.randn(16, 8)
        ((model(state) - state[:, :4]).square().mean() * factor).backward()
        optimizer.step()


def sgd_at_the_edge_of_stability():
    """The weights nearly change sign in each step, but the loss still falls."""
    model = nn.Linear(8, 4, bias=False)

    def loop(model, optimizer):
        for _ in range(30):
            optimizer.zero_grad()
            model(torch.randn(512, 8)).square().mean().backward()
            optimizer.step()

    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=3.4),
        "loop": loop,
        "expect": {"severity": "warning", "parameter": "weight", "message": "have been too large for 5 steps in a row"},
    }


def sgd_with_the_rate_of_adam_and_a_loss_that_is_averaged_twice():
    model = _policy()
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=1e-6),
        "loop": lambda model, optimizer: _train(model, optimizer, factor=1 / 64),
        "expect": {"message": "have been too small for 5 steps in a row"},
    }


def one_group_only():
    model = _policy()
    optimizer = torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 3e-11}])
    optimizer.param_groups[0]["lr"] = 3e-11
    return {
        "model": model,
        "optimizer": optimizer,
        "loop": _train,
        "expect": {"message": "by AdamW have been too small"},
    }

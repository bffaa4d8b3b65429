"""Loops in which some gradients are zero, or some steps have none."""

import torch
from torch import nn


def _program(model, loop, **expect):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def _step(model, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def head_that_starts_at_zero():
    """In the first step only the head has a gradient."""
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)

    def loop(model, optimizer):
        for _ in range(10):
            _step(model, optimizer, (model(torch.randn(4, 3)) - 1).square().mean())

    return _program(model, loop)


def margin_that_is_satisfied_later():
    model = nn.Linear(3, 1)

    def loop(model, optimizer):
        for _ in range(40):
            _step(model, optimizer, (0.5 - model(torch.ones(4, 3))).clamp(min=0).mean())

    return _program(model, loop)


def reward_in_one_of_four_steps():
    model = nn.Linear(3, 2)

    def loop(model, optimizer):
        for step in range(12):
            _step(model, optimizer, model(torch.randn(4, 3)).square().mean() * (1.0 if step % 4 == 3 else 0.0))

    return _program(model, loop)


def five_steps_only():
    model = nn.Linear(3, 2)

    def loop(model, optimizer):
        for _ in range(5):
            _step(model, optimizer, model(torch.randn(4, 3)).square().mean())

    return _program(model, loop, not_examined="5 of 8 steps")

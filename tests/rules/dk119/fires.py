"""Losses that were rebuilt from their value before backward."""

import torch
from torch import nn
from torch.nn import functional as F


def _program(loop, **expect):
    model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "error", **expect}}


def _loss(model):
    return F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2))


def rebuilt_from_its_number():
    def loop(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.tensor(_loss(model).item(), requires_grad=True)
            loss.backward()  # DK119
            optimizer.step()

    return _program(loop, message="no graph connects with a parameter in 3 steps")


def accumulated_mean_of_numbers():
    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            for _ in range(2):
                losses = torch.tensor([_loss(model).item() for _ in range(3)], requires_grad=True)
                (losses.mean() / 2).backward()  # DK119
            optimizer.step()

    return _program(loop)


def required_after_detach():
    def loop(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            with torch.no_grad():
                loss = _loss(model)
            loss.requires_grad_().backward()  # DK119
            optimizer.step()

    return _program(loop)


def loop_that_raises_at_the_clipping():
    """torch says: Expected !nested_tensorlist[0].empty() to be true, but got false."""

    def loop(model, optimizer):
        optimizer.zero_grad()
        torch.tensor(_loss(model).item(), requires_grad=True).backward()  # DK119
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)

    program = _program(loop, message="a parameter, so no parameter has a gradient")
    return {**program, "raises": RuntimeError}

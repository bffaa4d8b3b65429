"""Loops whose loss has no gradient."""

import torch
from torch import nn
from torch.nn import functional as F


def _program(model, loss_of, **expect):
    def loop(model, optimizer):
        for _ in range(10):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning", **expect}}


def softmax_over_one_class():
    def loss_of(model):
        return F.cross_entropy(model(torch.randn(8, 3)), torch.zeros(8, dtype=torch.long))

    return _program(nn.Linear(3, 1), loss_of, message="exactly 0 in each of the 8 steps so far, and the loss is 0")


def every_token_masked():
    def loss_of(model):
        error = (model(torch.randn(8, 3)) - 1).square()
        return (error * torch.zeros(8, 1)).sum() + 3.0

    return _program(nn.Linear(3, 2), loss_of, message="and the loss is 3")

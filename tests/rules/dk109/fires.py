"""Stacks whose first layers get almost no gradient."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.vision, self.head = nn.Linear(16, 32), head

    def forward(self, x, action):
        return {"loss": (self.head(self.vision(x)) - action).square().mean()}


def _program(head, **expect):
    batch = {"x": torch.randn(32, 16), "action": torch.randn(32, 4)}
    return {"model": Policy(head), "batch": batch, "expect": {"severity": "warning", **expect}}


def eight_sigmoid_layers():
    layers = [layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.Sigmoid())]
    return _program(nn.Sequential(*layers, nn.Linear(32, 4)), module="head.0", message="shrinks over 9 layers")


def tanh_layers_with_small_weights():
    layers = [layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Tanh())]
    head = nn.Sequential(*layers, nn.Linear(32, 4))
    with torch.no_grad():
        for layer in head[::2]:
            layer.weight.mul_(0.02)
            layer.bias.add_(0.5)
    return _program(head, module="head.0")

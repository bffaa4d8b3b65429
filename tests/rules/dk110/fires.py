"""Stacks in which values grow by a factor per layer."""

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


def relu_layers_with_too_large_a_gain():
    layers = [layer for _ in range(10) for layer in (nn.Linear(32, 32), nn.ReLU())]
    for layer in layers[::2]:
        nn.init.normal_(layer.weight, std=1.0)
    return _program(nn.Sequential(*layers, nn.Linear(32, 4)), message="The output grows", module="head.20")


def bounded_layers_that_fold_their_input_many_times():
    class Folding(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(6)])
            self.out = nn.Linear(32, 4)

        def forward(self, x):
            for layer in self.layers:
                x = torch.sin(40 * layer(x))
            return self.out(x)

    return _program(Folding(), message="The gradient grows", module="head.layers.0")

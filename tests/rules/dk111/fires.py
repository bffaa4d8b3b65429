"""ReLU layers whose units are all zero."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.act, self.head = nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)

    def hidden(self, x):
        return self.act(self.vision(x))

    def forward(self, x, action):
        return {"loss": (self.head(self.hidden(x)) - action).square().mean()}


def _program(model, size=16, **expect):
    batch = {"x": torch.randn(size, 6), "action": torch.randn(size, 2)}
    return {"model": model, "batch": batch, "expect": {"severity": "warning", **expect}}


def biases_far_below_zero():
    model = Policy()
    nn.init.constant_(model.vision.bias, -30)
    return _program(model, module="act", message="16 of 16 ReLU units of `act` are zero for all 48 samples")


def called_as_a_function():
    class Functional(Policy):
        def hidden(self, x):
            return nn.functional.relu(self.vision(x) - 50)

    return _program(Functional(), size=24, module="", message="of the model")


def channels_of_a_convolution():
    convolution = nn.Conv2d(3, 16, 3)
    nn.init.constant_(convolution.bias, -30)
    model = nn.Sequential(convolution, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))
    return {
        "model": model,
        "batch": torch.randn(4, 3, 8, 8),
        "loss_fn": lambda model, batch: (model(batch) - 1).square().mean(),
        "expect": {"module": "1", "message": "16 of 16"},
    }

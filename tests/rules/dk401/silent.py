"""Normalisers with an exact inverse, and models without a normaliser."""

import torch
from torch import nn


class MeanStd(nn.Module):
    def __init__(self, dtype=torch.float32, constant_joint=False):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.1, 50.0, -0.3], dtype=dtype))
        std = torch.tensor([2.0, 0.5, 0.0 if constant_joint else 1.0], dtype=dtype)
        self.register_buffer("std", std.clamp_min(1e-6))

    def normalize(self, action):
        return (action - self.mean) / self.std

    def unnormalize(self, action):
        return action * self.std + self.mean


class Policy(nn.Module):
    def __init__(self, normaliser):
        super().__init__()
        self.head, self.normaliser = nn.Linear(4, 3), normaliser

    def forward(self, state, action):
        return {"loss": (self.head(state) - self.normaliser.normalize(action)).square().mean()}


def exact_inverse_far_from_zero():
    action = torch.randn(8, 3) + torch.tensor([0.0, 50.0, 0.0])
    return {"model": Policy(MeanStd()), "batch": {"state": torch.randn(8, 4), "action": action}}


def joint_that_never_moves():
    action = torch.randn(8, 3)
    action[:, 2] = -0.3
    return {"model": Policy(MeanStd(constant_joint=True)), "batch": {"state": torch.randn(8, 4), "action": action}}


def half_precision():
    batch = {"state": torch.randn(8, 4), "action": torch.randn(8, 3).bfloat16()}
    return {"model": Policy(MeanStd(torch.bfloat16)), "batch": batch}


def clipped_beyond_the_data():
    class Clipping(MeanStd):
        def normalize(self, action):
            return super().normalize(action).clamp(-200, 200)

    return {"model": Policy(Clipping()), "batch": {"state": torch.randn(8, 4), "action": torch.randn(8, 3)}}


def layer_called_normalize_without_an_inverse():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(4, 4)

        def normalize(self, x):
            return nn.functional.normalize(x, dim=-1)

        def forward(self, x):
            return {"loss": self.normalize(self.proj(x)).mean()}

    return {"model": Encoder(), "batch": {"x": torch.randn(4, 4)}, "expect": {"not_examined": "No normalise"}}

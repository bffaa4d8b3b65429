"""Steps that cannot be repeated."""

import time

import numpy as np
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, middle):
        super().__init__()
        self.body, self.middle, self.head = nn.Linear(4, 8), middle, nn.Linear(8, 2)

    def forward(self, state):
        return self.head(self.middle(self.body(state).relu())).square().mean()


class OwnEntropy(nn.Module):
    def forward(self, hidden):
        generator = torch.Generator()
        generator.seed()
        return hidden + torch.randn(hidden.shape, generator=generator)  # DK701


class NumpyEntropy(nn.Module):
    def forward(self, hidden):
        noise = np.random.default_rng().normal(size=hidden.shape)
        return hidden + torch.tensor(noise, dtype=hidden.dtype)  # DK701


class Clock(nn.Module):
    def forward(self, hidden):
        return hidden * (1 + time.perf_counter_ns() % 1_000_003)  # DK701


class _NoisyGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden):
        return hidden.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient + torch.tensor(np.random.default_rng().normal(size=gradient.shape), dtype=gradient.dtype)


class NoisyBackward(nn.Module):
    def forward(self, hidden):
        return _NoisyGradient.apply(hidden)


def _arguments(middle, **expect):
    return {
        "model": Policy(middle),
        "batch": torch.randn(6, 4),
        "loss_fn": lambda model, state: model(state),
        "expect": {"module": "middle", **expect},
    }


def generator_seeded_from_the_system():
    return _arguments(OwnEntropy(), severity="error", message="seed does not control")


def fresh_numpy_generator():
    return _arguments(NumpyEntropy(), severity="warning")


def clock_in_the_forward_pass():
    return _arguments(Clock(), severity="warning")


def randomness_in_a_custom_backward():
    return _arguments(NoisyBackward(), module="body", parameter="body.bias", severity="error")


class HeldNumpy(nn.Module):
    def __init__(self, *seed):
        super().__init__()
        self.numbers = np.random.default_rng(*seed)

    def forward(self, hidden):
        return hidden + torch.as_tensor(self.numbers.normal(size=hidden.shape), dtype=hidden.dtype)


def numpy_generator_of_a_module_without_a_seed():
    return {**_arguments(HeldNumpy()), "expect": {"severity": "warning", "message": "has no seed"}}

"""Data with heavy tails, with rewards, with zeros, and with two kinds of samples."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def _arguments(states, *others, **expect):
    return {
        "model": nn.Linear(states.shape[1], 2),
        "batch": (states[:4], *(other[:4] for other in others)),
        "loss_fn": lambda model, batch: model(batch[0]).square().mean(),
        "dataloader": DataLoader(TensorDataset(states, *others), batch_size=8),
        "expect": expect,
    }


def standardised():
    return _arguments(torch.randn(64, 3))


def rewards_at_the_end_of_an_episode():
    rewards = torch.full((64,), -0.01)
    rewards[31::32] = 100.0
    return _arguments(torch.randn(64, 3), rewards)


def log_normal_values():
    return _arguments(torch.exp(2 * torch.randn(256, 4)))


def mostly_zeros():
    counts = torch.zeros(64, 8)
    counts[3] = torch.randn(8) * 50
    return _arguments(torch.randn(64, 3), counts)


def two_cameras_of_different_range():
    states = torch.randn(64, 3)
    states[::3] *= 1000
    return _arguments(states)


def too_few_samples():
    return _arguments(torch.randn(12, 3), not_examined="No entry of the loader has 16 samples")


def nothing_but_nan():
    """DK313 reports them."""
    return _arguments(torch.full((64, 3), float("nan")), not_examined="No entry of the loader has 16 samples")

"""Data sets in which a few samples are in another unit."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def _arguments(states, actions, **expect):
    return {
        "model": nn.Linear(states.shape[1], actions.shape[1]),
        "batch": (states[:4], actions[:4]),
        "loss_fn": lambda model, batch: (model(batch[0]) - batch[1]).square().mean(),
        "dataloader": DataLoader(TensorDataset(states, actions), batch_size=8),
        "expect": {"severity": "warning", **expect},
    }


def one_recording_in_millimetres():
    states = torch.randn(64, 3) * 0.3
    states[20:23] *= 1000
    return _arguments(states, torch.randn(64, 4), input="[0]", message="3 samples of 64 are up to")


def one_action_that_was_scaled_twice():
    actions = torch.randn(40, 7)
    actions[5] *= 1e6
    return _arguments(torch.randn(40, 3), actions, input="[1]", message="the others in")

"""Loops and data sets that seed the global generators again."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def _program(loop, **expect):
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning", **expect}}


def _step(model, optimizer, state):
    optimizer.zero_grad()
    model(state).square().mean().backward()
    optimizer.step()


def evaluation_that_seeds_and_does_not_restore():
    def loop(model, optimizer):
        for _ in range(3):
            for _ in range(4):
                _step(model, optimizer, torch.randn(8, 3))
            torch.manual_seed(0)  # DK705
            with torch.no_grad():
                model(torch.randn(8, 3))

    return _program(loop, message="The random state of torch after step 8 was already there after step 4")


def augmentation_seeded_in_each_epoch():
    def loop(model, optimizer):
        for _ in range(3):
            np.random.seed(42)  # DK705
            for _ in range(4):
                _step(model, optimizer, torch.from_numpy(np.random.rand(8, 3).astype(np.float32)))

    return _program(loop, message="The random state of NumPy after step 4 was already there after step 0")


def long_epochs_that_are_seeded_each():
    def loop(model, optimizer):
        for _ in range(4):
            random.seed(7)  # DK705
            for _ in range(80):
                _step(model, optimizer, torch.full((4, 3), random.random()))

    return _program(loop, message="Python's `random`")


class _Frames(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        torch.manual_seed(index)
        return torch.randn(3)


def data_set_that_seeds_for_each_sample():
    model = nn.Linear(3, 2)
    return {
        "model": model,
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "dataloader": DataLoader(_Frames(), batch_size=4),
        "expect": {"message": "Reading the train loader seeds torch"},
    }

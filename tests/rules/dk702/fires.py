"""Data sets whose workers all draw the same random numbers."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self):
        self.data, self.noise = torch.randn(12, 4), torch.Generator().manual_seed(0)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):  # DK702
        return self.data[index] + torch.randn(4, generator=self.noise)


class Jitter:
    def __init__(self):
        self.noise, self.shift = np.random.default_rng(0), random.Random(0)

    def __call__(self, image):
        return image * self.noise.uniform(0.9, 1.1) + self.shift.random()


class Augmented(Noisy):
    def __init__(self):
        self.data, self.transform = np.ones((12, 4), dtype=np.float32), Jitter()

    def __getitem__(self, index):  # DK702
        return {"image": self.transform(self.data[index]), "name": "frame"}


def _arguments(dataset, message, **options):
    loader = DataLoader(dataset, batch_size=2, **options)
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randn(2, 4),
        "loss_fn": lambda model, state: model(state).square().mean(),
        "dataloader": loader,
        "expect": {"severity": "error", "message": message},
    }


def generator_held_by_the_dataset():
    return _arguments(Noisy(), "the 2 workers draw the same random numbers and every epoch", num_workers=2)


def numpy_generator_in_a_transform():
    return _arguments(Augmented(), "`transform.noise`", num_workers=2)


def one_worker_repeats_its_epochs():
    return _arguments(Noisy(), "every epoch repeats", num_workers=1)


def workers_that_stay_agree_with_each_other():
    return _arguments(Noisy(), "the 2 workers draw the same", num_workers=2, persistent_workers=True)

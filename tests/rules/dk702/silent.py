"""Workers that draw independently."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Frames(Dataset):
    def __init__(self):
        self.data = torch.randn(12, 4)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


class GlobalDraws(Frames):
    def __getitem__(self, index):
        return self.data[index] + torch.randn(4) * random.random() + float(np.random.rand())


class OwnGenerator(Frames):
    def __init__(self):
        super().__init__()
        self.noise = torch.Generator().manual_seed(0)

    def __getitem__(self, index):
        return self.data[index] + torch.randn(4, generator=self.noise)


class LazyGenerator(Frames):
    """The generator is created at the first draw, from the seed of each worker."""

    noise = None

    def __getitem__(self, index):
        if self.noise is None:
            self.noise = np.random.default_rng(torch.initial_seed())
        return self.data[index] + float(self.noise.normal())


class Cached(Frames):
    """Samples are drawn once and cached."""

    def __init__(self):
        super().__init__()
        self.noise, self.kept = torch.Generator().manual_seed(0), {}

    def __getitem__(self, index):
        if index not in self.kept:
            self.kept[index] = self.data[index] + torch.randn(4, generator=self.noise)
        return self.kept[index]


class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.randn(12, 4)


def _seed_worker(_):
    info = get_worker_info()
    info.dataset.noise.manual_seed(info.seed)


def _arguments(dataset, expect=None, **options):
    loader = DataLoader(dataset, batch_size=2, **options)
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randn(2, 4),
        "loss_fn": lambda model, state: model(state).square().mean(),
        "dataloader": loader,
        "expect": expect or {},
    }


def nothing_is_drawn():
    return _arguments(Frames(), num_workers=2, shuffle=True)


def global_generators():
    return _arguments(GlobalDraws(), num_workers=2)


def generator_seeded_in_each_worker():
    return _arguments(OwnGenerator(), num_workers=2, worker_init_fn=_seed_worker)


def generator_made_in_each_worker():
    return _arguments(LazyGenerator(), num_workers=2)


def drawn_once_and_kept():
    return _arguments(Cached(), num_workers=2)


def no_workers():
    return _arguments(OwnGenerator(), {"not_examined": "has no workers"})


def stream():
    return _arguments(Stream(), {"not_examined": "iterated and not indexed"}, num_workers=2)

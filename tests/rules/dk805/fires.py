"""Samplers that do not divide the data between the ranks."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

DATA = TensorDataset(torch.arange(96.0).reshape(24, 4))


def _arguments(loader, **expect):
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randn(2, 4),
        "loss_fn": lambda model, state: model(state).square().mean(),
        "dataloader": loader,
        "expect": expect,
    }


class PartOfAShuffle(Sampler):
    """Every rank shuffles with the global generator and takes every second index."""

    def __init__(self, rank, world_size):
        self.rank, self.world_size = rank, world_size

    def __iter__(self):  # DK805
        yield from torch.randperm(24)[self.rank :: self.world_size].tolist()

    def __len__(self):
        return 12


class OverlappingParts(PartOfAShuffle):
    """Each part is half of the data, but the second one starts after a third."""

    def __iter__(self):  # DK805
        yield from range(self.rank * 8, self.rank * 8 + 12)


class IgnoresItsRank(PartOfAShuffle):
    def __iter__(self):  # DK805
        yield from range(24)


def shuffle_by_the_global_generator():
    loader = DataLoader(DATA, batch_size=2, sampler=PartOfAShuffle(0, 2))
    return _arguments(loader, severity="warning", message="as soon as one rank draws one random number more")


def parts_that_overlap():
    sampler = OverlappingParts(1, 2)
    return _arguments(
        DataLoader(DATA, batch_size=2, sampler=sampler), message="several ranks visit 4 of them, and no rank visits 4"
    )


class EveryFourth(PartOfAShuffle):
    """Created for four ranks but run on two."""

    def __iter__(self):  # DK805
        yield from range(self.rank, 24, 4)


def part_of_a_larger_world():
    sampler = EveryFourth(0, 2)
    return _arguments(DataLoader(DATA, batch_size=2, sampler=sampler), severity="error", message="no rank visits 12")


def sampler_that_ignores_its_rank():
    loader = DataLoader(DATA, batch_size=2, sampler=IgnoresItsRank(0, 2))
    return _arguments(loader, severity="warning", message="several ranks visit 24 of them")

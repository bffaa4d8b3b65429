"""Lesson 71: NumPy's global generator in workers, which used to repeat, and a held generator, which does."""

# --8<-- [start:numpy]
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Draws(Dataset):
    """Eight numbers per epoch, from a generator that the data set holds, or from NumPy's global one."""

    def __init__(self, generator):
        self.generator = generator

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return (self.generator or np.random).random()


for name, generator in (("np.random", None), ("np.random.default_rng(0), held", np.random.default_rng(0))):
    draws = DataLoader(
        Draws(generator),
        num_workers=2,
        multiprocessing_context="fork",
        generator=torch.Generator().manual_seed(0),
    )
    drawn = [float(value) for _ in range(2) for value in draws]
    print(f"{name:<31} {len(set(drawn)):2d} different numbers of {len(drawn)}")
# --8<-- [end:numpy]
assert len(set(drawn)) == 4

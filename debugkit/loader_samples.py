"""Read a loader without side effects: its random generators are restored, and iterators are not consumed."""

from __future__ import annotations

import copy
import itertools
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from debugkit._torch_private import end_workers, has_running_workers
from debugkit.finding import NotExamined
from debugkit.randomness import same_randomness

FEW = 32
"""Number of batches to read from a loader to find out whether something occurs in it."""


@contextmanager
def batches_of(loader: Iterable[Any], most: int = FEW, seed: int | None = None) -> Iterator[Iterator[Any]]:
    """The first batches of a loader. Afterwards the random generators of the loader are restored.

    With `seed`, the global generators are seeded, so that two loaders with random data do not return the same data.
    Raises NotExamined for an iterator, because training would miss the batches read here. Also raises NotExamined for
    a loader whose persistent workers are in use.
    """
    if can_be_read_once(loader):
        raise NotExamined("The loader is an iterator: training would miss the batches that are read from it now.")
    lasting = bool(getattr(loader, "persistent_workers", False))
    if lasting and has_running_workers(loader):
        raise NotExamined("The loader's persistent workers are in use, and reading it would restart them.")
    with left_as_it_was(loader, seed):
        iterator = iter(loader)
        try:
            yield itertools.islice(iterator, most)
        finally:
            del iterator  # stops its worker processes
            if lasting:
                end_workers(loader)


@contextmanager
def left_as_it_was(loader: Any, seed: int | None = None) -> Iterator[None]:
    """Restore the global random generators and those of the loader, its samplers and its data set."""
    states = list(_generators(loader))
    with same_randomness(seed):
        try:
            yield
        finally:
            for generator, state in states:
                put_generator_back(generator, state)


def can_be_read_once(loader: Iterable[Any]) -> bool:
    """Whether the loader is an iterator. Does not call `iter(loader)`, because a DataLoader then draws a seed."""
    return isinstance(loader, Iterator)


def draws_at_random(loader: object, size: int) -> bool:
    """Whether a DataLoader makes batches of `size` samples in random order, and several of them in an epoch."""
    if not isinstance(loader, DataLoader) or loader.batch_size != size:
        return False
    sampler = loader.sampler
    if not isinstance(sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler):
        return False
    return len(sampler) > size


def _generators(loader: Any) -> Iterator[tuple[Any, Any]]:
    """The random generators of the loader, its samplers and its data set, with their states."""
    seen: set[int] = set()
    for owner in (loader, *(getattr(loader, name, None) for name in ("dataset", "sampler", "batch_sampler"))):
        for holder in (owner, getattr(owner, "sampler", None), getattr(owner, "dataset", None)):
            for value in vars(holder).values() if hasattr(holder, "__dict__") else ():
                if id(value) not in seen and (state := generator_state(value)) is not None:
                    seen.add(id(value))
                    yield value, state


def generator_state(value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.random.Generator):
        return copy.deepcopy(value.bit_generator.state)
    return None


def put_generator_back(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.bit_generator.state = state

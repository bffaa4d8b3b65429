"""Reading a loader without a trace: its generators are put back, and what can be read only once is left alone."""

from __future__ import annotations

import copy
import itertools
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.restore import same_randomness

FEW = 32
"""Batches read of a loader when all that matters is whether something is in it."""


@contextmanager
def batches_of(loader: Iterable[Any], most: int = FEW, seed: int | None = None) -> Iterator[Iterator[Any]]:
    """The first batches of a loader; afterwards every generator it holds draws as if they had not been read.

    With `seed`, global randomness starts there, so that two loaders that make up their data do not make up the same.
    Raises NotExamined for an iterator, from which training would miss what is read now, and for a loader whose lasting
    workers are busy with it.
    """
    if can_be_read_once(loader):
        raise NotExamined("The loader is an iterator: what is read from it now, training would not see.")
    lasting = bool(getattr(loader, "persistent_workers", False))
    if lasting and getattr(loader, "_iterator", None) is not None:
        raise NotExamined("The loader's persistent workers are in use, and reading it would start them anew.")
    with left_as_it_was(loader, seed):
        iterator = iter(loader)
        try:
            yield itertools.islice(iterator, most)
        finally:
            del iterator  # ends its worker processes
            if lasting:
                loader._iterator = None  # type: ignore[attr-defined]


@contextmanager
def left_as_it_was(loader: Any, seed: int | None = None) -> Iterator[None]:
    """Put back the state of every generator that the loader, its samplers or its data set hold, and the global ones."""
    states = list(_generators(loader))
    with same_randomness(seed):
        try:
            yield
        finally:
            for generator, state in states:
                put_generator_back(generator, state)


def can_be_read_once(loader: Iterable[Any]) -> bool:
    """Whether the loader is an iterator. `iter(loader)` would tell too, but a DataLoader draws a seed for it."""
    return isinstance(loader, Iterator)


def _generators(loader: Any) -> Iterator[tuple[Any, Any]]:
    """The random generators held by the loader, its samplers and its data set, with their states."""
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

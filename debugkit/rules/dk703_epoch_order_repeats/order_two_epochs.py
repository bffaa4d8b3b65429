"""Read the order of two epochs from each loader's sampler: indices only, and its generators are restored."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from debugkit.finding import NotExamined
from debugkit.loader_samples import left_as_it_was
from debugkit.randomness import same_randomness
from debugkit.rules.dk703_epoch_order_repeats import EpochOrder, EpochOrders
from debugkit.setup import TrainingSetup

_COMPARED = 1000
_LEAST = 6
"""Indices: two random orders of six indices are equal with probability 1/720."""


def order_two_epochs(setup: TrainingSetup) -> EpochOrders:
    """Compare the orders of two epochs for each loader; no data are read."""
    orders = [order for role, loader in setup.loaders.items() if (order := _order(role, loader)) is not None]
    if not orders:
        raise NotExamined("No loader has a sampler with six or more indices whose order could be read.")
    return EpochOrders(tuple(orders))


def _order(role: str, loader: Iterable[Any]) -> EpochOrder | None:
    sampler = _sampler_of(loader)
    if sampler is None:
        return None
    with left_as_it_was(loader), same_randomness(0):
        first, second = _indices(sampler), _indices(sampler)
    if first is None or second is None or len(first) < _LEAST:
        return None
    flat = [index for index in first if isinstance(index, int)]
    return EpochOrder(
        role=role,
        sampler=type(sampler).__name__,
        shuffles=len(flat) == len(first) and flat != sorted(flat),
        repeats=first == second,
        repeats_after_set_epoch=_after_set_epoch(loader, sampler, first),
        compared=len(first),
    )


def _sampler_of(loader: Any) -> Any:
    """The sampler of single indices, or a custom batch sampler if there is none."""
    batches = getattr(loader, "batch_sampler", None)
    inner = getattr(batches, "sampler", None)
    return inner if inner is not None else batches if batches is not None else getattr(loader, "sampler", None)


def _indices(sampler: Any) -> list[Any] | None:
    found: list[Any] = []
    for entry in itertools.islice(iter(sampler), _COMPARED):
        entries = entry if isinstance(entry, list | tuple) else [entry]
        found += [int(index) if hasattr(index, "__index__") else index for index in entries]
    return None if any(index is None for index in found) else found


def _after_set_epoch(loader: Any, sampler: Any, first: list[Any]) -> bool | None:
    """Whether the order is the same after `set_epoch(n + 1)`; the sampler's attributes are restored."""
    if not callable(getattr(sampler, "set_epoch", None)):
        return None
    before = dict(vars(sampler))
    with left_as_it_was(loader), same_randomness(0):
        try:
            sampler.set_epoch(int(getattr(sampler, "epoch", 0)) + 1)
            return _indices(sampler) == first
        finally:
            vars(sampler).clear()
            vars(sampler).update(before)

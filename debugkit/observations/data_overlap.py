"""Samples that occur both in training and in validation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataOverlap:
    """Two loaders compared, by index where both are parts of one data set, by content otherwise."""

    train: str
    other: str
    by_index: bool
    train_samples: int
    other_samples: int
    """How many samples of each were compared."""
    shared: int
    """Samples of the other that are in training as well."""
    repeated: float
    """The share of training samples that occur more than once in training itself; 0 by index."""
    complete: bool
    """Whether all samples were compared."""


@dataclass(frozen=True, slots=True)
class DataOverlaps:
    """Training against every other loader."""

    pairs: tuple[DataOverlap, ...]

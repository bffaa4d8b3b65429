"""What the worker processes of a loader draw."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerRandomness:
    """One sample, asked of each worker several times and in two epochs, by digests of its content."""

    role: str
    workers: int
    varies: bool
    """Whether one worker gives the same index differently each time."""
    workers_agree: bool
    """Whether two workers give it alike, draw for draw."""
    epochs_agree: bool
    """Whether the second epoch gives it like the first, draw for draw."""
    generator: str | None
    """Where the data set holds a generator; None where none is found."""


@dataclass(frozen=True, slots=True)
class WorkersRandomness:
    """One entry for each loader that could be asked."""

    loaders: tuple[WorkerRandomness, ...]

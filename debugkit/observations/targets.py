"""What the targets of a batch say, read from the batch alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TargetValues:
    """One tensor of targets."""

    path: str
    total: int
    ignored: int
    """Labels below zero, which a loss leaves out; 0 for actions."""
    distinct: int
    """How many different values the others have."""
    value: float
    """The first of them; NaN if all are ignored."""
    whole_numbers: bool
    rows: int
    per_token: bool
    """Whether there are several labels per sample."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The labels and the target action of the batch, whichever it has."""

    tensors: tuple[TargetValues, ...]

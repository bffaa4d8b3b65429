"""NaN and Inf in what the model is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NonfiniteInput:
    """One tensor of one batch."""

    role: str
    """`batch`, or the loader it came from."""
    batch: int
    """Which batch of that loader."""
    path: str
    kind: str
    """`NaN` or `Inf`."""
    count: int
    total: int
    rows: tuple[int, ...]
    """The first samples that have it."""


@dataclass(frozen=True, slots=True)
class NonfiniteInputs:
    """What was found; deliberate -inf of masks left out."""

    found: tuple[NonfiniteInput, ...]
    result_finite: bool | None
    """Whether loss and outputs of the first such batch are finite; None where none is, or it could not be run."""
    batches: int
    """How many batches were looked at."""

"""The gradient of micro-batches, added up, against that of the whole batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccumulatedGradient:
    """Over all trainable parameters."""

    parts: int
    cosine: float
    ratio: float
    """Norm of the accumulated gradient over that of the whole batch."""
    difference: float
    """Norm of their difference over that of the whole batch."""
    floor: float
    double: bool
    """Whether it was computed in float64; else in the model's own type."""
    parameter: str
    """The one that differs most, by norm."""

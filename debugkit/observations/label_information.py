"""Whether targets can be told from inputs any better than shuffled targets can."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabelInformation:
    """A permutation test with a leave-one-out fit."""

    target: str
    samples: int
    error: float
    """Leave-one-out squared error over the targets' variance: 1 is what guessing their mean gives."""
    shuffled_error: float
    """The median of the same over shuffled targets."""
    p_value: float
    """The share of shuffles that were fitted at least as well, the true targets counted among them."""
    shuffles: int

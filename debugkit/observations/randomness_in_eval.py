"""Dropout that is still at work in eval mode."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine


@dataclass(frozen=True, slots=True)
class EvalDropout:
    """One operation that drops values, at one line of one module."""

    operation: str
    module: str | None
    at: SourceLine | None
    rate: float | None
    """The share that is dropped; None where it is not known."""
    elementwise: bool
    """Whether each value is dropped by itself; otherwise whole samples or channels are."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class RandomnessInEval:
    """What one pass in eval mode drew."""

    dropouts: tuple[EvalDropout, ...]
    other_draws: int
    """Draws that are no dropout: noise and time of flow matching, sampling, random masking."""

"""What a few steps on a copy of the model do to the loss of one batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateTrial:
    """The loss before each step and after the last, with every group's rate multiplied by `factor`."""

    factor: float
    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LearningRates:
    """What the optimizers' groups say."""

    rates: tuple[float, ...]
    """Of each group of each optimizer that holds a trainable parameter."""
    scheduled: bool
    """Whether a scheduler has written an initial rate, so that a warm-up may hold the rate at 0."""


@dataclass(frozen=True, slots=True)
class LearningRateTrial:
    """The optimizer's own steps on one batch, with the draws of each step alike."""

    own: RateTrial
    other: RateTrial | None = None
    """Another rate, tried where the own one did not lower the loss."""


@dataclass(frozen=True, slots=True)
class OneBatchTraining:
    """A few samples learnt by heart, from the same start at two rates; the better curve counts."""

    samples: int
    rate: float
    losses: tuple[float, ...]

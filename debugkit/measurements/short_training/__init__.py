"""The effect of a few training steps, on a copy of the model, on the loss of one batch."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observation import measured_by


@dataclass(frozen=True, slots=True)
class RateTrial:
    """The loss before each step and after the last, with every group's rate multiplied by `factor`."""

    factor: float
    losses: tuple[float, ...]


@measured_by(".measure:read_the_learning_rates", cost=0, requires=("optimizer",))
@dataclass(frozen=True, slots=True)
class LearningRates:
    """The learning rates of the optimizers' groups."""

    rates: tuple[float, ...]
    """The rate of each group that holds a trainable parameter."""
    scheduled: bool
    """Whether a scheduler has set an initial rate, in which case a warm-up may keep the rate at 0."""
    built_at: SourceLine | None = None
    """The line that built the optimizer, where the program has only one such line."""


@measured_by(".measure:try_the_learning_rate", cost=10, requires=("batch", "optimizer"))
@dataclass(frozen=True, slots=True)
class LearningRateTrial:
    """The optimizer's own steps on one batch, with equal random draws in each step."""

    own: RateTrial
    other: RateTrial | None = None
    """A trial with another rate, if the optimizer's own rate did not lower the loss."""


@measured_by(".measure:learn_a_few_samples", cost=36, requires=("batch",))
@dataclass(frozen=True, slots=True)
class OneBatchTraining:
    """An attempt to memorise a few samples, from the same start at two rates. The better curve is kept."""

    samples: int
    rate: float
    losses: tuple[float, ...]

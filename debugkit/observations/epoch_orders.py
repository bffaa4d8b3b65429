"""In which order a loader visits its data from one epoch to the next."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine


@dataclass(frozen=True, slots=True)
class EpochOrder:
    """The indices of two epochs of one loader, without any data being read."""

    role: str
    sampler: str
    shuffles: bool
    """Whether the first order is other than ascending."""
    repeats: bool
    """Whether the second epoch has the order of the first."""
    repeats_after_set_epoch: bool | None
    """The same with `set_epoch(n + 1)` between them; None where the sampler has no such method."""
    compared: int


@dataclass(frozen=True, slots=True)
class EpochOrders:
    """One entry for each loader whose sampler could be asked."""

    loaders: tuple[EpochOrder, ...]


@dataclass(frozen=True, slots=True)
class RepeatedEpoch:
    """A sampler with `set_epoch` that was started again for the same epoch, and trained from each time."""

    sampler: str
    epoch: int
    times: int
    at: SourceLine | None


@dataclass(frozen=True, slots=True)
class TrainedEpochs:
    """The starts of shuffling distributed samplers in a live loop that steps followed."""

    repeated: tuple[RepeatedEpoch, ...]
    starts: int

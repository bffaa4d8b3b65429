"""Which samples each rank would visit in one epoch."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class Coverage(PlainData):
    """One epoch of all ranks together. `overlapping` and `missed` count samples visited twice or more, and never."""

    overlapping: int
    missed: int
    of_each_rank: tuple[int, ...]


@dataclass(frozen=True)
class SamplerPartition(PlainData):
    """One loader's sampler, asked for the order of every rank.

    `together` is what comes of it if all ranks have drawn the same random numbers so far, `drifted` if each has drawn
    others. `padding` and `tail` are how many samples may rightly be visited twice, or left out, so that all ranks visit
    equally many. `knows_its_rank` is False for a sampler that is the same on every rank.
    """

    role: str
    sampler: str
    world_size: int
    samples: int
    padding: int
    tail: int
    knows_its_rank: bool
    together: Coverage
    drifted: Coverage


@dataclass(frozen=True)
class SamplerPartitions(PlainData):
    """One entry for each loader whose sampler could be asked."""

    loaders: tuple[SamplerPartition, ...]

"""Whether all ranks hold the same parameters after a step."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class Divergence(PlainData):
    """The first step after which ranks held different bits.

    `parameter` is the first tensor, in the model's order, of `different` out of `compared` that differ; `groups` are
    the ranks that agree with one another on it.
    """

    step: int
    parameter: str
    different: int
    compared: int
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RankDigests(PlainData):
    """What this rank has learnt of the others so far.

    `wrapped` is whether a wrapper promises that the parameters are alike; `steps` is how many steps were compared with
    at least one other rank; `first` is None while all agreed.
    """

    rank: int
    world_size: int
    wrapped: bool
    steps: int
    first: Divergence | None

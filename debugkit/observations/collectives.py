"""Which collectives each rank has called, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData

State = Literal["running", "ended", "raised", "silent"]
"""silent: the rank has left no word, so it was not started, or is not watched."""


@dataclass(frozen=True)
class Collective(PlainData):
    """One call. `number` counts the calls of its `group`, the ranks that must all make it, from 0.

    `shape` and `dtype` are those of its tensor, where they must be the same on every rank; else empty. `done` is
    whether the call has returned. `operation` may be `backward of DistributedDataParallel`, which averages inside.
    """

    operation: str
    group: tuple[int, ...]
    number: int
    shape: tuple[int, ...]
    dtype: str
    at: SourceLine | None
    done: bool


@dataclass(frozen=True)
class RankRecord(PlainData):
    """The last calls of one rank, oldest first, the line at which its main thread stands, and what it raised."""

    rank: int
    state: State
    calls: tuple[Collective, ...] = ()
    stands_at: SourceLine | None = None
    error: str = ""


@dataclass(frozen=True)
class CollectiveRecord(PlainData):
    """The ranks' records as `rank` could read them, itself among them; `compared` is False until a call took too long.

    `waited` is for how many seconds its last call has not come back.
    """

    rank: int
    world_size: int
    compared: bool
    waited: float
    ranks: tuple[RankRecord, ...]

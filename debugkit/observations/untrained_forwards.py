"""Forward passes in evaluation mode that recorded an autograd graph which no backward ever used."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class UntrainedForwards(PlainData):
    """Those of one line: how many, in which module, and how many of their graphs something still holds."""

    module: str
    at: SourceLine | None
    count: int
    alive: int


@dataclass(frozen=True)
class EvaluationGraphs(PlainData):
    """The run so far; `forwards` counts all evaluations that were over, with a graph or without."""

    forwards: int
    wasted: tuple[UntrainedForwards, ...]

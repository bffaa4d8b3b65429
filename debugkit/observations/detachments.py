"""Operations that took a tensor with a gradient and returned something without one."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class Detachment(PlainData):
    """One such operation: what it was called (`detach`, `item`, `no_grad`, `argmax`, …) and where it stands.

    `caller` is the line that called the function holding `line`; it tells two uses of one helper function apart.
    """

    operation: str
    line: SourceLine | None
    caller: SourceLine | None = None
    count: int = 1


@dataclass(frozen=True)
class Detachments(PlainData):
    """Every such operation of one run, in order of first appearance."""

    detachments: tuple[Detachment, ...]

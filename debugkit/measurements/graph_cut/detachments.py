"""Operations whose input has a gradient and whose output has none."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class Detachment(PlainData):
    """One such operation: its name (`detach`, `item`, `no_grad`, `argmax`, …) and its line.

    `caller` is the line that called the function containing `line`. It distinguishes two uses of one helper function.
    """

    operation: str
    line: SourceLine | None
    caller: SourceLine | None = None
    count: int = 1


@observed_by("debugkit.measurements.graph_cut.gradient_stops:DetachmentProbe")
@dataclass(frozen=True)
class Detachments(PlainData):
    """Every such operation of one run, in order of first appearance."""

    detachments: tuple[Detachment, ...]

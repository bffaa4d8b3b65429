"""Which indices a step looks up, in which table, and whether the table has them."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class IndexRange(PlainData):
    """One lookup: an embedding, class labels, a gather. `lowest` and `highest` leave ignored labels out.

    `rows` is how many there are; `beyond` how many indices are not among them, in the samples `samples` (the first
    few); `parameter` the table's path if it is one; `entry` the batch's tensor that holds these very indices.
    """

    operation: str
    rows: int
    lowest: int
    highest: int
    beyond: int = 0
    samples: tuple[int, ...] = ()
    parameter: str | None = None
    module: str | None = None
    entry: str | None = None
    ignored: int | None = None
    at: SourceLine | None = None

    @property
    def fits(self) -> bool:
        """Whether the table has every index."""
        return self.lowest >= 0 and self.highest < self.rows


@dataclass(frozen=True)
class IndexRanges(PlainData):
    """The lookups of one step, in order; those of the same place that fit, once."""

    lookups: tuple[IndexRange, ...]

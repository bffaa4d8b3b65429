"""Columns that a Trainer takes off its samples because no argument of the model's forward has their name."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class NeededColumn(PlainData):
    """What is different with a column, the rest being equal: the loss, or that there is one at all.

    `without` and `with_it` are the loss, or what was raised in place of one.
    """

    columns: tuple[str, ...]
    without: float | str
    with_it: float | str


@dataclass(frozen=True)
class DroppedColumns(PlainData):
    """`dropped`: columns that the samples have and the batches have not. `needed`: those that the loss needs.

    `floor` is the relative difference of two losses below which they count as equal.
    """

    dropped: tuple[str, ...]
    needed: tuple[NeededColumn, ...]
    samples: int
    floor: float

"""What a ReduceLROnPlateau was stepped with, and what it did to the learning rate."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class PlateauStep(PlainData):
    """One step of a ReduceLROnPlateau."""

    metric: float
    rate: float | None
    """The learning rate after it: the largest of the groups; None if one of them is a tensor."""
    training_loss: float | None
    """The mean of the losses that `backward()` was called on since the previous step; None if it is not known."""


@dataclass(frozen=True)
class Plateau(PlainData):
    """The first steps of one ReduceLROnPlateau."""

    optimizer: int
    mode: str
    maximize: bool
    """Whether the optimizer maximizes."""
    at: SourceLine | None
    """The line of its first step."""
    steps: tuple[PlateauStep, ...]

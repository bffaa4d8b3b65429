"""How a model takes to changes of its padding: other content in it, more of it, none of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Movement:
    """Relative movements against the unchanged batch, in eval mode with equal draws."""

    output: str | None
    """Path of the output that moved most where there is content; None if no output has a row per sample to compare."""
    moved: float
    """By how much; 0.0 where there is no output."""
    loss_moved: float
    module: str | None = None
    """The first module, in order of execution, whose values at positions with content moved; None if none was seen."""


@dataclass(frozen=True, slots=True)
class PaddingReaction:
    """What happened. A part is None where it could not be tried; `why_not` then says why, in a sentence."""

    mask: str
    """Path of the mask in the batch."""
    padded: int
    """How many of the batch's positions are padding."""
    positions: int
    floor: float
    content: Movement | None
    """Other content at padded positions."""
    longer: Movement | None
    """More padding of the same kind."""
    added: int
    """How many positions of padding were added to each row."""
    alone: Movement | None
    """The row with most padding: alone and without any, against the same row in the batch."""
    counted_labels: int
    """Labels at padded positions that a loss would not ignore."""
    labels_aligned: bool
    """Whether there is a label per position."""
    why_not: str = ""

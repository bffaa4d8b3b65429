"""How a model reacts to changes of its padding: other content, more padding, no padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debugkit.observation import measured_by


@dataclass(frozen=True, slots=True)
class Movement:
    """Relative changes compared with the unchanged batch, in eval mode with equal random draws."""

    output: str | None
    """Path of the output that changed most at content positions; None if no output has a row per sample."""
    moved: float
    """By how much it changed; 0.0 if there is no output."""
    loss_moved: float
    module: str | None = None
    """The first module, in order of execution, whose values at content positions changed; None if there is none."""


@measured_by(".measure:change_the_padding", cost=3, requires=("batch",))
@dataclass(frozen=True, slots=True)
class PaddingReaction:
    """The results. A part is None if it could not be tried; `why_not` is then a sentence with the reason."""

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
    """The row with the most padding, computed alone and without padding, compared with the same row in the batch."""
    counted_labels: int
    """Labels at padded positions that a loss would not ignore."""
    labels_aligned: bool
    """Whether there is one label per position."""
    why_not: str = ""
    mask_says: Literal["content", "padding", "nothing"] = "content"
    """What the mask is 1 for: content, the padding (it is inverted), or everything (the token ids show the padding)."""

"""How the loss takes steps of an action chunk that are marked as padding."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine


@dataclass(frozen=True, slots=True)
class PaddedActions:
    """Relative movements of the loss, in eval mode with equal draws."""

    path: str
    """Path of the (B, H) mask that is True where a step is padding."""
    padded: int
    steps: int
    floor: float
    target_moved: float
    """With other target actions for a sample all of whose steps are marked as padding; NaN for a batch of one."""
    additivity: float
    """|L(A) + L(B) - L(A and B)| over L(A and B), for two halves A and B of the valid steps."""
    weighted: float
    """The same for the mean of L(A) and L(B), weighted by their sizes: 0 for a mean over valid steps."""
    mean_at: SourceLine | None
    """The line that takes a mean over steps of something that is zero exactly where there is padding."""

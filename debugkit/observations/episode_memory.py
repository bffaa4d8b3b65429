"""Whether the first action of an episode depends on the one before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpisodeMemory:
    """In eval mode, with equal draws, for one sample."""

    has_reset: bool
    moved: float
    """How far the first action moved after an episode with other observations; the largest of the lengths tried."""
    steps: int
    """How many steps that episode had."""
    floor: float
    output: str

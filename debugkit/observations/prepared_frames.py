"""One raw frame as training and as serving prepare it."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine


@dataclass(frozen=True, slots=True)
class PreparedEntry:
    """One entry that differs."""

    path: str
    difference: str
    """In words: what training has and what serving has."""
    moved: float
    """Largest difference over the largest value; inf where kinds, shapes or presence differ."""


@dataclass(frozen=True, slots=True)
class PreparedFrames:
    """Both results compared."""

    differing: tuple[PreparedEntry, ...]
    compared: int
    random: tuple[str, ...]
    """Entries that differ between two runs of the same path: augmented, so not compared."""
    floor: float
    at: SourceLine | None
    """The first line of the serving path."""

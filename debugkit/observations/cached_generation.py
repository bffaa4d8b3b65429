"""Whether keeping keys and values changes what comes next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CachedGeneration:
    """The last position of a text in one pass, against the same position after a cache of the earlier ones."""

    module: str
    """The module that keeps the cache."""
    moved: float
    floor: float
    kept: int
    """Positions in the cache."""

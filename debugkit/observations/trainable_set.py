"""What is trainable, beside what was declared to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainableSet:
    """Paths are dotted; a tied parameter has its first. A pattern may match any of its names."""

    trainable: int
    unmatched: tuple[str, ...]
    """Declared patterns that match no parameter."""
    undeclared: tuple[str, ...]
    """Trainable parameters that no pattern names."""
    frozen: tuple[str, ...]
    """Parameters that a pattern names and that are frozen."""
    numel_undeclared: int
    numel_frozen: int

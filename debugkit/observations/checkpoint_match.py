"""A model held against the checkpoint it was meant to be loaded from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A tensor that both have under one name, with two shapes."""

    name: str
    in_checkpoint: tuple[int, ...]
    in_model: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckpointMatch:
    """Names are those of `state_dict()`; a tensor found under another name counts as loaded."""

    tensors: int
    """In the checkpoint."""
    loaded: int
    missing: tuple[str, ...]
    """In the model, not in the checkpoint, and not declared fresh; only parameters and floating buffers."""
    unexpected: tuple[str, ...]
    """In the checkpoint, and nowhere in the model."""
    different: tuple[str, ...]
    """In both, with other values."""
    mismatched: tuple[Mismatch, ...]
    renaming: tuple[str, str] | None
    """The prefix in the checkpoint and the one in the model, if one exchange makes the names fit."""
    trained_since: str | None
    """Why other values are to be expected; None if the model should be as it was loaded."""

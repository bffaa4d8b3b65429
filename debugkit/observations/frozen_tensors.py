"""Which parameters and buffers that should stay as they are changed across a training step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal["optimizer", "forward"]


@dataclass(frozen=True, slots=True)
class FrozenChange:
    """One frozen tensor that is not bit for bit what it was."""

    path: str
    module: str
    kind: Literal["parameter", "buffer"]
    cause: Cause
    """`optimizer`: it changed while `optimizer.step()` ran; `forward`: it changed before."""
    changed: int
    numel: int
    largest: float
    """The largest absolute change."""


@dataclass(frozen=True, slots=True)
class FrozenTensors:
    """What was frozen and what of it changed in one step."""

    watched: int
    changes: tuple[FrozenChange, ...]

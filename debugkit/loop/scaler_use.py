"""The use of a GradScaler in a run."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observation import provided_by
from debugkit.plain_data import PlainData


@provided_by("debugkit.watch")
@dataclass(frozen=True)
class ScalerUse(PlainData):
    """The number of calls of `scaler.step()`, how many were skipped after an overflow, and the current scale.

    `scale` is None if no enabled scaler was used, or if it no longer exists.
    """

    asked: int
    skipped: int
    scale: float | None

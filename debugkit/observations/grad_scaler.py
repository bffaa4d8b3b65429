"""What a GradScaler did."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class ScalerUse(PlainData):
    """Steps asked of the scaler, how many it skipped for an overflow, and its last scale (None: none was used)."""

    asked: int
    skipped: int
    scale: float | None

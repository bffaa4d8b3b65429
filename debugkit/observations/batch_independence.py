"""How far the outputs for the other samples move when sample 0 of a batch is replaced."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchIndependence:
    """Relative movements in eval mode with fixed draws."""

    batch_size: int
    output: str
    """Path of the output that moved most, `""` for a bare tensor."""
    moved: float
    """The largest movement of any row but the first."""
    rows_moved: int
    """How many rows other than the first moved beyond the floor, in that output."""
    one_column: bool
    """Whether only column 0 moved, in an output with one column per sample: similarities of each with each."""
    floor: float
    module: str
    """The first module, in order of execution, one of whose outputs moved for another sample."""

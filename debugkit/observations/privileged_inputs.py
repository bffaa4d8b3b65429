"""What inference does with entries of the batch that the robot will not have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrivilegedInput:
    """One entry that was changed."""

    path: str
    reason: str
    """`target` or `future`."""
    output: str
    moved: float


@dataclass(frozen=True, slots=True)
class PrivilegedInputs:
    """All that were tried, in eval mode with equal draws."""

    inputs: tuple[PrivilegedInput, ...]
    floor: float

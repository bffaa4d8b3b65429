"""The smallest and largest value of every module's output."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OutputRange:
    """One output tensor. `module` is the dotted path; NaN in both numbers means the tensor held a NaN."""

    module: str
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Activations:
    """Every floating output of a step, in the order it was computed."""

    outputs: tuple[OutputRange, ...]

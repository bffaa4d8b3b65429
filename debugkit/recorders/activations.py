"""The smallest and largest value of every module's output."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OutputRange:
    """One output tensor. `module` is the dotted path; both numbers are NaN if the tensor contained a NaN."""

    module: str
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Activations:
    """Every floating-point output of a step, in the order of computation."""

    outputs: tuple[OutputRange, ...]

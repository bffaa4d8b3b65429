"""What hand-written backwards answered when they were asked whether they are the derivative of their forward."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observations.gradient_check import GradientTest, WorstEntry


@dataclass(frozen=True)
class CustomFunction:
    """One torch.autograd.Function of the graph, checked on small inputs taken from its real ones."""

    name: str
    backward: SourceLine | None
    called_at: SourceLine | None
    shapes: tuple[tuple[int, ...], ...]
    """Of the inputs it was checked on."""
    failed: tuple[GradientTest, ...]
    worst: WorstEntry | None
    """Where the Jacobian differs most; None if it does not."""
    on_purpose: str | None
    """Why a Jacobian that differs is meant to (a straight-through estimator, a gradient reversal)."""
    single_precision: bool
    """Whether the function computes in float32 whatever it is given, so that only gross differences show."""


@dataclass(frozen=True)
class CustomFunctions:
    """Every custom Function that the loss's graph holds."""

    checked: tuple[CustomFunction, ...]
    unchecked: tuple[tuple[str, str], ...] = ()
    """(name, why)"""

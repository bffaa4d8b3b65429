"""How large all gradients together were, step after step, as an optimizer was about to use them."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class TotalNorm(PlainData):
    """The L2 norm of one optimizer's gradients in one step, and the parameter with the largest share of it."""

    step: int
    norm: float
    largest: str
    largest_norm: float


@dataclass(frozen=True)
class OptimizerNorms(PlainData):
    """One optimizer's norms: its first ones, and the last ones up to now, oldest first. Only finite, non-zero ones."""

    optimizer: str
    first: tuple[float, ...]
    last: tuple[TotalNorm, ...]


@dataclass(frozen=True)
class GradientHistory(PlainData):
    """A run so far; the lengths are bounded."""

    optimizers: tuple[OptimizerNorms, ...]

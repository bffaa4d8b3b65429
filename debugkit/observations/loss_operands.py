"""The two tensors that each loss of a step compares: loss functions, and differences taken by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass

from debugkit.finding import SourceLine

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison of a prediction with a target that went into a loss."""

    operation: str
    """`mse_loss`, `sub`… as torch names it."""
    first: Shape
    second: Shape
    at: SourceLine | None
    outer: bool = False
    """Whether a singleton dimension was put in on purpose just before (`x[:, None]`, `unsqueeze`, `keepdim=True`)."""

    @property
    def broadcast(self) -> Shape:
        """The shape the two are compared in."""
        longest = max(len(self.first), len(self.second))
        padded = [(1,) * (longest - len(shape)) + shape for shape in (self.first, self.second)]
        return tuple(b if a == 1 else a for a, b in zip(*padded, strict=True))

    @property
    def pairs(self) -> int:
        """How many pairs of numbers are compared."""
        return math.prod(self.broadcast)

    @property
    def crossed(self) -> bool:
        """Whether as many numbers on both sides are held each against all: (B, 1) with (B,)."""
        as_many = math.prod(self.first) == math.prod(self.second)
        return as_many and len(self.first) != len(self.second) and self.pairs > math.prod(self.first)

    @property
    def repeated(self) -> bool:
        """Whether one side is repeated along a dimension of the other: (B, 1, D) with (B, T, D). Scalars are not."""
        smaller = min(math.prod(self.first), math.prod(self.second))
        return not self.crossed and smaller != 1 and self.pairs > smaller


@dataclass(frozen=True, slots=True)
class LossOperands:
    """Every comparison of a step that reaches a scalar with a gradient, in order; the same line and shapes once."""

    comparisons: tuple[Comparison, ...]

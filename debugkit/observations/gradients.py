"""The size of every parameter's gradient as an optimizer is about to use it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class GradientNorms(PlainData):
    """L2 norms by parameter path, in one step of one optimizer. A norm may overflow although every value is finite."""

    step: int
    optimizer: int
    norms: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """The norm of all gradients together."""
        return math.hypot(*(norm for _, norm in self.norms))

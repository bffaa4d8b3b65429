"""The norm of each parameter's gradient just before the optimizer step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class GradientNorms(PlainData):
    """L2 norms by parameter path, in one step of one optimizer. A norm can overflow even if all values are finite."""

    step: int
    optimizer: int
    norms: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """The norm of all gradients together."""
        return math.hypot(*(norm for _, norm in self.norms))

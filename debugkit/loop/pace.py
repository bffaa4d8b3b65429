"""Which steps of a loop have their values examined: each, one in `every`, or fewer where the model is tiny."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

TINY = 2**17
"""Parameters. A step of a smaller model takes about a millisecond, and examining it several."""
TINY_FIRST = 64
"""Steps of a tiny model that are all examined."""
TINY_EVERY = 61
"""Later one in 61 is examined. It is prime, as `SAMPLED_EVERY` is."""


class Pace:
    """`looks_at(step)` for the steps of a run. Without `every`, the size of the models decides."""

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._is_tiny = False

    def measure(self, models: Iterable[nn.Module]) -> None:
        """The models are complete; none has no size and is not tiny."""
        sizes = [parameter.numel() for model in models for parameter in model.parameters()]
        self._is_tiny = self._every is None and 0 < sum(sizes) < TINY

    def looks_at(self, step: int) -> bool:
        """Whether the values of a step are examined."""
        if self._is_tiny:
            return step < TINY_FIRST or step % TINY_EVERY == 0
        return step % (self._every or 1) == 0

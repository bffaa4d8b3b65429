"""Which steps of a loop have their values examined: each, one in `every`, or fewer where the model is tiny."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

TINY = 2**17
"""Parameters. A step of a smaller model takes about a millisecond, and examining it several."""
TINY_FIRST = 64
"""Steps of a tiny model that are examined at the given pace."""
TINY_EVERY = 61
"""Later at most one in 61 is examined. It is prime, as `SAMPLED_EVERY` is."""


class Pace:
    """`looks_at(step)` for the steps of a run. `every=1` examines each; without it, fewer steps of a tiny model."""

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._is_tiny = False

    def measure(self, models: Iterable[nn.Module]) -> None:
        """The models are complete; none has no size and is not tiny."""
        sizes = [parameter.numel() for model in models for parameter in model.parameters()]
        self._is_tiny = self._every != 1 and 0 < sum(sizes) < TINY

    def looks_at(self, step: int) -> bool:
        """Whether the values of a step are examined."""
        every = self._every or 1
        if self._is_tiny and step >= TINY_FIRST * every:
            every = max(every, TINY_EVERY)
        return step % every == 0

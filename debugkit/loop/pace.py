"""Which steps of a loop have their values examined: each, one in `every`, or fewer where the model is tiny."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from debugkit.probe import FIRST_STEPS

TINY = 2**17
"""Parameters. A step of a smaller model takes about a millisecond, and examining it several."""
TINY_FIRST = FIRST_STEPS
"""Steps of a tiny model that are examined at the given pace."""
TINY_EVERY = 97
"""Later at most one in 97 is examined. It is prime, as `SAMPLED_EVERY` is."""
_STAGES = 4
"""Optimizers that begin late and whose first steps are examined."""


class Pace:
    """`looks_at(step)` for the steps of a run. `every=1` examines each; without it, fewer steps of a tiny model."""

    def __init__(self, every: int | None) -> None:
        self._every = every
        self.is_tiny = False
        """Whether the models are so small that examining a step takes longer than the step itself."""
        self._first = self._stages = 0

    def measure(self, models: Iterable[nn.Module]) -> None:
        """The models are complete; none has no size and is not tiny."""
        sizes = [parameter.numel() for model in models for parameter in model.parameters()]
        self.is_tiny = self._every != 1 and 0 < sum(sizes) < TINY

    def looks_at(self, step: int) -> bool:
        """Whether the values of a step are examined."""
        every = self._every or 1
        if self.is_tiny and self._is_late(step):
            every = max(every, TINY_EVERY)
        return step % every == 0

    def begin_stage(self, step: int) -> None:
        """An optimizer has begun, as of a policy after its encoder. Its first steps are examined as those of the run.

        That is so for the first few that begin late: a loop may make an optimizer in each epoch.
        """
        if self._is_late(step) and self._stages < _STAGES:
            self._first, self._stages = step, self._stages + 1

    def _is_late(self, step: int) -> bool:
        return step - self._first >= TINY_FIRST * (self._every or 1)

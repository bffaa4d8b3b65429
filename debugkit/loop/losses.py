"""The losses that backward() was called on."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observation import provided_by
from debugkit.plain_data import PlainData

_UNEQUAL = 2
"""From more than twice as many calls, a loss may be larger only because it has more terms."""


@dataclass(frozen=True)
class Loss(PlainData):
    """One scalar loss and its step; a step has several with accumulation or with several losses."""

    step: int
    value: float
    calls: int = 1
    """The calls of the models with gradients since the previous `backward()`, from which it was computed."""


@provided_by("debugkit.watch")
@dataclass(frozen=True)
class Losses(PlainData):
    """The first losses of a run and its last ones, oldest first."""

    first: tuple[Loss, ...]
    last: tuple[Loss, ...]

    @property
    def comparable(self) -> bool:
        """Whether each comes from about as many calls. A sum over an episode grows with the episode's length."""
        calls = [loss.calls for loss in (*self.first, *self.last)]
        return not calls or max(calls) <= _UNEQUAL * min(calls)

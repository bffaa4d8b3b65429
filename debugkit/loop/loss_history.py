"""The first and the last losses of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from debugkit.loop.losses import Loss, Losses
from debugkit.recorders.timeline import Range

_FIRST, _LAST = 8, 256


class LossHistory:
    """Call `absorb` with the ranges read from the device; `.observation` is the run so far."""

    def __init__(self) -> None:
        self._first: list[Loss] = []
        self._last: deque[Loss] = deque(maxlen=_LAST)
        self._calls: deque[int] = deque()  # of the losses that are on the timeline and have not been read yet

    @property
    def observation(self) -> Losses:
        return Losses(tuple(self._first), tuple(self._last))

    def recorded(self, calls: int) -> None:
        """A loss was recorded on the timeline. It was computed from this many calls of the models."""
        self._calls.append(calls)

    def absorb(self, ranges: Iterable[Range], step: int) -> None:
        """Add the losses among `ranges`, which belong to `step`."""
        for seen in ranges:
            if seen.entry.kind != "loss":
                continue
            loss = Loss(step, seen.minimum, self._calls.popleft() if self._calls else 1)
            self._last.append(loss)
            if len(self._first) < _FIRST:
                self._first.append(loss)

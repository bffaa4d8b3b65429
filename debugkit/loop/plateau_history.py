"""Records the steps of each ReduceLROnPlateau."""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from debugkit._torch_private import without_torch_function
from debugkit.finding import SourceLine
from debugkit.loop.learning_rates import rates_of
from debugkit.loop.plateaus import Plateau, PlateauStep
from debugkit.recorders.timeline import has_range

_MOST_STEPS = 256
_MOST_SCHEDULERS = 8


class PlateauHistory:
    """Records the steps of the schedulers. From the first one on, the losses are added up on their device."""

    def __init__(self) -> None:
        self._known: list[tuple[weakref.ref[Any], int, SourceLine | None, list[PlateauStep]]] = []
        self._sum: Tensor | None = None
        self._count = 0
        self._before: dict[int, tuple[Tensor | None, int]] = {}  # the sum at the previous step of each scheduler

    @property
    def observation(self) -> tuple[Plateau, ...]:
        return tuple(
            Plateau(number, scheduler.mode, _maximizes(scheduler.optimizer), at, tuple(steps))
            for known, number, at, steps in self._known
            if (scheduler := known()) is not None
        )

    def add_loss(self, loss: Tensor) -> None:
        """`backward()` is called on a loss. Nothing is read from its device."""
        if not self._known or not has_range(loss) or loss.is_complex():
            return
        with torch.no_grad(), without_torch_function():
            value = loss.detach().reshape(()).to(torch.float32 if loss.device.type == "mps" else torch.float64)
            if self._sum is not None and self._sum.device != value.device:
                value = value.to(self._sum.device)
            self._sum = value if self._sum is None else self._sum + value
        self._count += 1

    def stepped(self, scheduler: Any, number: int, metric: Any, at: SourceLine | None) -> None:
        """A scheduler has made a step with a metric, which it has just converted to a float itself."""
        if not isinstance(scheduler, ReduceLROnPlateau):
            return
        index = next((i for i, known in enumerate(self._known) if known[0]() is scheduler), None)
        if index is None:
            if len(self._known) == _MOST_SCHEDULERS:
                return
            index = len(self._known)
            self._known.append((weakref.ref(scheduler), number, at, []))
        steps = self._known[index][3]
        if len(steps) < _MOST_STEPS:
            rate = rates_of(scheduler.optimizer)["largest_rate"]
            steps.append(PlateauStep(float(metric), rate, self._mean_since(index)))

    def _mean_since(self, index: int) -> float | None:
        before, self._before[index] = self._before.get(index), (self._sum, self._count)
        if before is None or self._sum is None or self._count == before[1]:
            return None
        earlier = 0.0 if before[0] is None else float(before[0])
        mean = (float(self._sum) - earlier) / (self._count - before[1])
        return mean if math.isfinite(mean) else None


def _maximizes(optimizer: Any) -> bool:
    return any(group.get("maximize") for group in optimizer.param_groups)

"""The norm of each optimizer's gradients over a run, after clipping and unscaling, as `step()` uses them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from debugkit.gradient_norms import GradientNorms
from debugkit.probe import Probe
from debugkit.recorders.gradient_norms import GradientReading
from debugkit.recorders.scalars import read_scalars
from debugkit.rules.dk205_gradient_spike import GradientHistory, OptimizerNorms, TotalNorm
from debugkit.setup import TrainingSetup

_FIRST = 8
_LAST = 65  # the newest, and 64 to compare it with


@dataclass
class _Record:
    label: str
    first: list[float] = field(default_factory=list)
    last: deque[TotalNorm] = field(default_factory=lambda: deque(maxlen=_LAST))


class GradientHistoryProbe(Probe[GradientHistory]):
    """One scalar for each gradient, kept on the device until the step ends. A few dozen totals are kept."""

    complete_after = "backward"

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._records: dict[int, _Record] = {}  # by id() of the optimizer
        self._pending: list[tuple[_Record, GradientReading, list[torch.Tensor]]] = []
        self._read: list[tuple[_Record, GradientNorms]] = []
        self._given: int | None = None  # id() of the optimizer whose norms were already read for its next step

    def gradient_norms_read(self, optimizer: torch.optim.Optimizer, norms: GradientNorms, /) -> None:
        self._given = id(optimizer)
        self._read.append((self._record(optimizer), norms))

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        given, self._given = self._given, None
        if given == id(optimizer):
            return
        with torch.no_grad():
            reading = GradientReading(optimizer, self.setup.parameter_paths)
            self._pending.append((self._record(optimizer), reading, reading.scalars()))

    def end_step(self, step: int, /) -> None:
        read, self._read = self._read, []
        pending, self._pending = self._pending, []
        for record, norms in read:
            _add_total(record, step, norms.norms)
        for record, reading, scalars in pending:
            _add_total(record, step, reading.named(read_scalars(scalars, torch.float32)))

    def _record(self, optimizer: torch.optim.Optimizer) -> _Record:
        label = f"{type(optimizer).__name__} (optimizer {len(self._records)})"
        return self._records.setdefault(id(optimizer), _Record(label))

    @property
    def observation(self) -> GradientHistory:
        return GradientHistory(
            tuple(OptimizerNorms(r.label, tuple(r.first), tuple(r.last)) for r in self._records.values())
        )


def _add_total(record: _Record, step: int, norms: Sequence[tuple[str, float]]) -> None:
    total = math.hypot(*(norm for _, norm in norms))
    if not math.isfinite(total) or total == 0.0:
        return
    name, largest = max(norms, key=lambda entry: entry[1])
    record.last.append(TotalNorm(step, total, name, largest))
    if len(record.first) < _FIRST:
        record.first.append(total)

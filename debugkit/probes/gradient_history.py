"""The norm of each optimizer's gradients over a run: after clipping and unscaling, as `step()` uses them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from debugkit.monitor.gradient_norms import GradientReading
from debugkit.observations.gradient_history import GradientHistory, OptimizerNorms, TotalNorm
from debugkit.observations.gradients import GradientNorms
from debugkit.probes import Probe, probe
from debugkit.subject import Subject

_FIRST = 8
_LAST = 65  # 64 to compare with, and the newest


@dataclass
class _Record:
    label: str
    first: list[float] = field(default_factory=list)
    last: deque[TotalNorm] = field(default_factory=lambda: deque(maxlen=_LAST))


@probe(GradientHistory, complete_after="backward")
class GradientHistoryProbe(Probe[GradientHistory]):
    """One scalar a gradient, on the device until the step ends; a few dozen totals are kept."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._records: dict[int, _Record] = {}  # by id() of the optimizer
        self._pending: list[tuple[_Record, GradientReading, list[torch.Tensor]]] = []
        self._read: list[tuple[_Record, GradientNorms]] = []
        self._given: int | None = None  # id() of the optimizer whose norms were handed over for its coming step

    def gradient_norms_read(self, optimizer: torch.optim.Optimizer, norms: GradientNorms, /) -> None:
        self._given = id(optimizer)
        self._read.append((self._record(optimizer), norms))

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        given, self._given = self._given, None
        if given == id(optimizer):
            return
        with torch.no_grad():
            reading = GradientReading(optimizer, self.subject.parameter_paths)
            self._pending.append((self._record(optimizer), reading, reading.scalars()))

    def end_step(self, step: int, /) -> None:
        read, self._read = self._read, []
        pending, self._pending = self._pending, []
        for record, norms in read:
            _note(record, step, norms.norms)
        for record, reading, scalars in pending:
            _note(record, step, reading.named(_read(scalars)))

    def _record(self, optimizer: torch.optim.Optimizer) -> _Record:
        label = f"{type(optimizer).__name__} (optimizer {len(self._records)})"
        return self._records.setdefault(id(optimizer), _Record(label))

    @property
    def observation(self) -> GradientHistory:
        return GradientHistory(
            tuple(OptimizerNorms(r.label, tuple(r.first), tuple(r.last)) for r in self._records.values())
        )


def _note(record: _Record, step: int, norms: Sequence[tuple[str, float]]) -> None:
    total = math.hypot(*(norm for _, norm in norms))
    if not math.isfinite(total) or total == 0.0:
        return
    name, largest = max(norms, key=lambda entry: entry[1])
    record.last.append(TotalNorm(step, total, name, largest))
    if len(record.first) < _FIRST:
        record.first.append(total)


def _read(scalars: list[torch.Tensor]) -> list[float]:
    if len({scalar.device for scalar in scalars}) > 1:
        scalars = [scalar.cpu() for scalar in scalars]
    return [float(norm) for norm in torch.stack([scalar.float() for scalar in scalars]).tolist()] if scalars else []

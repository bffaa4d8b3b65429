"""Compares a sample of every weight before and after `optimizer.step()`, and keeps the last few updates."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from debugkit._torch_private import norms
from debugkit.measurements.parameter_updates import ParameterHistory, ParameterUpdates, Update
from debugkit.measurements.parameter_updates.expected_update import expected_update
from debugkit.probe import SAMPLED_EVERY, Probe
from debugkit.recorders.scalars import read_scalars
from debugkit.recorders.timeline import has_range
from debugkit.setup import TrainingSetup

_SAMPLED = 2048  # elements of each parameter
_LAST = 5
_MOST_HALF = 64  # the number of 16-bit parameters, largest first, that are compared with float32
_HALF = (torch.float16, torch.bfloat16)


@dataclass
class _Record:
    path: str
    optimizer: str
    shape: tuple[int, ...]
    dtype: str
    embedding: bool
    zero_at_start: bool = False
    steps: int = 0
    largest_ratio: float = 0.0
    largest_learning_rate: float = 0.0
    first: list[Update] = field(default_factory=list)
    last: deque[Update] = field(default_factory=lambda: deque(maxlen=_LAST))


@dataclass
class _Sample:
    """One parameter between `before` and `after` one step."""

    parameter: Tensor
    group: dict[str, Any]
    before: Tensor
    gradient: Tensor | None  # kept for 16-bit weights only


@dataclass
class _Measured:
    """The results of one step, still on the device: for each parameter the sizes of change and weight, and `lost`."""

    records: list[_Record]
    groups: list[dict[str, Any]]
    sampled: list[int]
    sizes: list[Tensor]
    lost: dict[int, Tensor]


class ParameterUpdatesProbe(Probe[ParameterUpdates]):
    """Samples at most about 2,048 elements of each parameter. The numbers are read when the step ends."""

    complete_after = "optimizer"
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._records: dict[tuple[int, int], _Record] = {}  # by id() of optimizer and parameter
        self._labels: dict[int, str] = {}
        self._samples: list[_Sample] = []
        self._measured: list[_Measured] = []
        tables = [m for m in setup.model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
        self._embeddings = {id(table.weight) for table in tables}

    def __exit__(self, *error: object) -> None:
        self._samples, self._measured = [], []

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        self._samples = list(_samples(optimizer))

    def after_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        samples, self._samples = self._samples, []
        if not samples:
            return
        label = self._labels.setdefault(id(optimizer), f"{type(optimizer).__name__} (optimizer {len(self._labels)})")
        with torch.no_grad():
            after = [_some(sample.parameter) for sample in samples]
            before = [_wide(sample.before) for sample in samples]
            change = [_wide(now) - then for now, then in zip(after, before, strict=True)]
            lost = {
                index: share
                for index in _largest_half(samples)
                if (share := _lost(optimizer, samples[index], after[index])) is not None
            }
            self._measured.append(
                _Measured(
                    records=[self._record(optimizer, label, sample.parameter) for sample in samples],
                    groups=[sample.group for sample in samples],
                    sampled=[len(values) for values in before],
                    sizes=[*_norms(change), *_norms(before)],
                    lost=lost,
                )
            )

    def _record(self, optimizer: torch.optim.Optimizer, label: str, parameter: Tensor) -> _Record:
        key = id(optimizer), id(parameter)
        if key not in self._records:
            self._records[key] = _Record(
                path=self.setup.parameter_paths.get(id(parameter), "a parameter outside the model"),
                optimizer=label,
                shape=tuple(parameter.shape),
                dtype=str(parameter.dtype).removeprefix("torch."),
                embedding=id(parameter) in self._embeddings,
            )
        return self._records[key]

    def end_step(self, step: int, /) -> None:
        measured, self._measured = self._measured, []
        self._samples = []
        for each in measured:
            values = read_scalars([*each.sizes, *each.lost.values()], torch.float32)
            count = len(each.records)
            shares = dict(zip(each.lost, values[2 * count :], strict=True))
            for index, record in enumerate(each.records):
                root = math.sqrt(each.sampled[index])
                change, weight = values[index] / root, values[count + index] / root
                _add_update(record, step, each.groups[index], change, weight, shares.get(index))

    @property
    def observation(self) -> ParameterUpdates:
        return ParameterUpdates(
            tuple(
                ParameterHistory(
                    path=record.path,
                    optimizer=record.optimizer,
                    shape=record.shape,
                    dtype=record.dtype,
                    zero_at_start=record.zero_at_start,
                    embedding=record.embedding,
                    steps=record.steps,
                    largest_ratio=record.largest_ratio,
                    largest_learning_rate=record.largest_learning_rate,
                    last=tuple(record.last),
                    first=tuple(record.first),
                )
                for record in self._records.values()
                if record.last
            )
        )


def _add_update(
    record: _Record, step: int, group: dict[str, Any], change: float, weight: float, lost: float | None
) -> None:
    rate = float(group.get("lr", math.nan))
    initial = group.get("initial_lr")
    known = record.last[-1].learning_rate if record.last else initial
    rising = known is not None and (rate > float(known) if record.last else rate < 0.99 * float(known))
    update = Update(step, rate, rising, change, weight, None if lost is None or math.isnan(lost) else lost)
    if record.steps == 0:
        record.zero_at_start = weight == 0.0
    record.steps += 1
    if not math.isfinite(change + weight):
        return
    record.last.append(update)
    if len(record.first) < _LAST:
        record.first.append(update)
    record.largest_ratio = max(record.largest_ratio, update.ratio)
    record.largest_learning_rate = max(record.largest_learning_rate, rate, float(initial or 0.0))


def _samples(optimizer: torch.optim.Optimizer) -> Iterator[_Sample]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None or not has_range(parameter) or not has_range(gradient) or parameter.is_complex():
                continue
            half = parameter.dtype in _HALF
            yield _Sample(parameter, group, _some(parameter).clone(), _some(gradient).clone() if half else None)


def _some(tensor: Tensor) -> Tensor:
    """Elements at equal distances, the same in every call."""
    flat = tensor.detach().flatten()
    return flat[:: max(1, len(flat) // _SAMPLED)]


def _largest_half(samples: Sequence[_Sample]) -> list[int]:
    half = [index for index, sample in enumerate(samples) if sample.gradient is not None]
    return sorted(half, key=lambda index: -samples[index].parameter.numel())[:_MOST_HALF]


def _lost(optimizer: torch.optim.Optimizer, sample: _Sample, after: Tensor) -> Tensor | None:
    """The lost share as a scalar on the device; NaN if no element would change in float32 either."""
    if sample.gradient is None:
        return None
    update = expected_update(optimizer, sample.parameter, sample.group, sample.gradient, _some)
    if update is None:
        return None
    before = sample.before
    wide = before.float() + update
    changes = (sample.gradient != 0) & (wide != before.float())
    same = (after.view(torch.int16) == before.view(torch.int16)) & (wide.to(before.dtype) == before)
    return (changes & same).sum() / changes.sum()


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in _HALF else values


def _norms(tensors: list[Tensor]) -> list[Tensor]:
    if len({tensor.device for tensor in tensors}) > 1:
        return [torch.linalg.vector_norm(tensor) for tensor in tensors]
    return norms(tensors)

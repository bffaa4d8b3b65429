"""Compares a sample of every weight before and after `optimizer.step()`, and keeps the last few updates."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from debugkit._torch_private import norms
from debugkit.finding import NotExamined, SourceLine
from debugkit.interventions.program_lines import built_at
from debugkit.measurements.parameter_updates import ParameterHistory, ParameterUpdates, Update
from debugkit.measurements.parameter_updates.expected_update import expected_update
from debugkit.probe import SAMPLED_EVERY, Probe
from debugkit.recorders.scalars import read_scalars
from debugkit.recorders.timeline import has_range
from debugkit.setup import TrainingSetup

_SAMPLED = 512  # elements of each parameter: enough for a root mean square
_SAMPLED_HALF = 2048  # of a 16-bit one, whose unchanged elements are counted
_LAST = 5
_MOST_HALF = 64  # the number of 16-bit parameters, largest first, that are compared with float32
_HALF = (torch.float16, torch.bfloat16)


@dataclass
class _Record:
    path: str
    optimizer: str
    shape: tuple[int, ...]
    dtype: str
    embedding: bool | None
    built_at: SourceLine | None = None
    zero_at_start: bool = False
    steps: int = 0
    largest_ratio: float = 0.0
    largest_learning_rate: float = 0.0
    first: list[Update] = field(default_factory=list)
    last: deque[Update] = field(default_factory=lambda: deque(maxlen=_LAST))


@dataclass
class _Samples:
    """Parameters of one device and dtype between `before` and `after` one step: their elements in one tensor."""

    parameters: list[Tensor] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)  # of 16-bit weights only
    before: Tensor = field(default_factory=lambda: torch.empty(0))

    def now(self, views: _Views) -> Tensor:
        """The elements as they are now, in a tensor of their own."""
        parts = [views.of(parameter) for parameter in self.parameters]
        self.counts = [part.numel() for part in parts]
        return torch.cat(parts)


class _Views:
    """The sampled elements of each parameter as a view of it: making one again in each step would be expensive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, torch.Size, Tensor]] = {}  # by id()

    def __contains__(self, parameter: Tensor) -> bool:
        return id(parameter) in self._known

    def of(self, parameter: Tensor) -> Tensor:
        """The view, which is made again if the parameter's data was replaced; a copy if it is not contiguous."""
        known = self._known.get(id(parameter))
        if known is not None and known[0] == parameter.data_ptr() and known[1] == parameter.shape:
            return known[2]
        view = _some(parameter)
        if parameter.is_contiguous():
            self._known[id(parameter)] = parameter.data_ptr(), parameter.shape, view
        return view

    def forget(self) -> None:
        """Release the views: each keeps the memory of its parameter alive."""
        self._known.clear()


@dataclass
class _Measured:
    """The results of one step, still on the device: for each parameter the sizes of change and weight, and `lost`."""

    records: list[_Record]
    groups: list[dict[str, Any]]
    sampled: list[int]
    sizes: list[Tensor]
    lost: dict[int, Tensor]


class ParameterUpdatesProbe(Probe[ParameterUpdates]):
    """Samples about 512 elements of each parameter, 2,048 of a 16-bit one. They are read when the step ends."""

    complete_after = "optimizer"
    covers_run = True
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._records: dict[tuple[int, int], _Record] = {}  # by id() of optimizer and parameter
        self._labels: dict[int, str] = {}
        self._samples: list[_Samples] = []
        self._measured: list[_Measured] = []
        self._views = _Views()
        tables = [m for m in setup.model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
        self._embeddings = {id(table.weight) for table in tables}

    def __exit__(self, *error: object) -> None:
        self._samples, self._measured = [], []
        self._views.forget()

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        with torch.no_grad():
            self._samples = _samples(optimizer, self._views)

    def after_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        samples, self._samples = self._samples, []
        if not samples:
            return
        label = self._labels.setdefault(id(optimizer), f"{type(optimizer).__name__} (optimizer {len(self._labels)})")
        with torch.no_grad():
            for alike in samples:
                self._measured.append(self._measure(optimizer, label, alike))

    def _measure(self, optimizer: torch.optim.Optimizer, label: str, samples: _Samples) -> _Measured:
        after, wide = samples.now(self._views), _wide(samples.before)
        if len(after) != len(wide):
            raise NotExamined("A parameter changed its size while the optimizer stepped.")
        change = torch.split(_wide(after) - wide, samples.counts)
        return _Measured(
            records=[self._record(optimizer, label, parameter) for parameter in samples.parameters],
            groups=samples.groups,
            sampled=samples.counts,
            sizes=norms([*change, *torch.split(wide, samples.counts)]),
            lost=_lost_shares(optimizer, samples, after),
        )

    def _record(self, optimizer: torch.optim.Optimizer, label: str, parameter: Tensor) -> _Record:
        key = id(optimizer), id(parameter)
        if key not in self._records:
            path = self.setup.parameter_paths.get(id(parameter))
            self._records[key] = _Record(
                path=path or "a parameter outside the model",
                optimizer=label,
                shape=tuple(parameter.shape),
                dtype=str(parameter.dtype).removeprefix("torch."),
                embedding=id(parameter) in self._embeddings if path is not None else None,
                built_at=built_at(optimizer, self.setup),
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
                    built_at=record.built_at,
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


def _samples(optimizer: torch.optim.Optimizer, views: _Views) -> list[_Samples]:
    alike: dict[tuple[torch.device, torch.dtype], _Samples] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None or not has_range(gradient) or not (parameter in views or _is_compared(parameter)):
                continue
            key = parameter.device, parameter.dtype
            samples = alike.get(key) or alike.setdefault(key, _Samples())
            samples.parameters.append(parameter)
            samples.groups.append(group)
            if parameter.dtype in _HALF:
                samples.gradients.append(_some(gradient, _SAMPLED_HALF).clone())
    for samples in alike.values():
        samples.before = samples.now(views)
    return list(alike.values())


def _is_compared(parameter: Tensor) -> bool:
    return has_range(parameter) and not parameter.is_complex()


def _some(tensor: Tensor, count: int | None = None) -> Tensor:
    """Elements at equal distances, the same in every call."""
    flat = tensor.detach().flatten()
    return flat[:: max(1, len(flat) // (count or (_SAMPLED_HALF if tensor.dtype in _HALF else _SAMPLED)))]


def _some_of_a_state(tensor: Tensor) -> Tensor:
    """The same elements of an optimizer's state, which may be float32."""
    return _some(tensor, _SAMPLED_HALF)


def _largest_half(samples: _Samples) -> list[int]:
    half = range(len(samples.gradients))
    return sorted(half, key=lambda index: -samples.parameters[index].numel())[:_MOST_HALF]


def _lost_shares(optimizer: torch.optim.Optimizer, samples: _Samples, after: Tensor) -> dict[int, Tensor]:
    """`_lost` of the largest 16-bit parameters, by index; those for which it is not known are left out."""
    largest = _largest_half(samples)
    if not largest:
        return {}
    befores, afters = torch.split(samples.before, samples.counts), torch.split(after, samples.counts)
    shares = {index: _lost(optimizer, samples, index, befores[index], afters[index]) for index in largest}
    return {index: share for index, share in shares.items() if share is not None}


def _lost(
    optimizer: torch.optim.Optimizer, samples: _Samples, index: int, before: Tensor, after: Tensor
) -> Tensor | None:
    """The lost share as a scalar on the device; NaN if no element would change in float32 either."""
    gradient, parameter = samples.gradients[index], samples.parameters[index]
    update = expected_update(optimizer, parameter, samples.groups[index], gradient, _some_of_a_state)
    if update is None:
        return None
    wide = before.float() + update
    changes = (gradient != 0) & (wide != before.float())
    same = (after.view(torch.int16) == before.view(torch.int16)) & (wide.to(before.dtype) == before)
    return (changes & same).sum() / changes.sum()


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in _HALF else values

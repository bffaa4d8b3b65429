"""Record each iteration of a sampler: its epoch, its first indices, and the training steps that followed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data.distributed import DistributedSampler

from debugkit._torch_private import is_compiled
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.probe import Probe
from debugkit.recorders.guard import guarded
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.recorders.optimizer_steps import OptimizerSteps
from debugkit.recorders.patches import Patches
from debugkit.rules.dk703_epoch_order_repeats import (
    SAME_BATCHES,
    RepeatedEpoch,
    RepeatedOrder,
    SameBatch,
    TrainedEpochs,
)
from debugkit.rules.dk703_epoch_order_repeats.kept_passes import KeptPasses

_COMPARED = 64
_FEWEST = 10
"""Two shuffled orders of this many indices are equal by chance once in 3,628,800 times."""
_REMEMBERED = 256


@dataclass(slots=True)
class _Start:
    """One `iter(sampler)`, what was read of it, and the training steps that followed a read."""

    sampler: weakref.ref[Any]
    epoch: int
    at: SourceLine | None
    seeded: bool = False
    """Whether `at` is a line that seeded the global generator since the previous start."""
    indices: list[Any] = field(default_factory=list)
    read: int = 0
    steps: int = 0
    alone: int = 0
    """Steps before which no other sampler was read: a batch of validation is not trained on."""


class TrainedEpochsProbe(Probe[TrainedEpochs]):
    """Observes the whole run; keeps one entry for each iteration that was followed by training steps."""

    def __enter__(self) -> Self:
        self._starts: list[_Start] = []
        self._reading: list[_Start] = []  # since the last step; the last one where nothing was read since
        self._stepped = False
        self._seeded: SourceLine | None = None
        self._patches = Patches()
        self._patches.__enter__()
        self._patches.around_overrides(DistributedSampler, "__iter__", before=self._started)
        for sampler in (RandomSampler, SubsetRandomSampler, SequentialSampler):
            self._patches.around(sampler, "__iter__", wrapped=self._recorded)
        for owner in (torch, torch.random):
            self._patches.around(owner, "manual_seed", after=self._seeds)
        self._ended = False
        self._calls = ModuleCalls([("", self.setup.model)], before=self._called)
        self._kept = KeptPasses(self._patches, guarded(self._pass_begins))
        self._steps = OptimizerSteps(after=guarded(self._kept.stepped))  # also those not examined
        self._steps.attach()
        return self

    def __exit__(self, *error: object) -> None:
        self._steps.remove()
        self._calls.remove()
        self._patches.__exit__(None, None, None)

    def loop_ended(self) -> None:
        self._ended = True

    def after_optimizer_step(self, _optimizer: torch.optim.Optimizer, /) -> None:
        for start in self._reading:
            start.steps += 1
        if len({id(start.sampler()) for start in self._reading}) == 1:
            self._reading[-1].alone += 1
        self._stepped = True

    @property
    def observation(self) -> TrainedEpochs:
        trained: dict[int, list[_Start]] = {}
        for start in self._starts:
            if (start.steps or start.indices) and start.sampler() is not None:
                trained.setdefault(id(start.sampler()), []).append(start)
        kept = tuple(self._kept.found(ended=self._ended))
        if not kept and not any(start.steps for starts in trained.values() for start in starts):
            raise NotExamined("The loop trained on no data loader whose sampler is one of torch's.")
        return TrainedEpochs(
            tuple(found for starts in trained.values() for found in _epochs(starts)),
            sum(start.steps > 0 for starts in trained.values() for start in starts),
            tuple(found for starts in trained.values() for found in _orders(starts)),
            tuple(found for starts in trained.values() for found in _same_batch(starts)),
            kept,
        )

    def _pass_begins(self) -> None:
        if not self._calls:
            self._calls.__enter__()

    def _called(self, _path: str, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if not torch.compiler.is_compiling() and torch.is_grad_enabled() and model.training:
            self._kept.called((args, kwargs))
            if not self._kept.is_waiting and not is_compiled(model):
                self._calls.remove()  # until another pass begins

    def _seeds(self, *_: Any, **__: Any) -> None:
        self._seeded = user_line()

    def _started(self, sampler: Any, *_: Any, **__: Any) -> None:
        if getattr(sampler, "shuffle", False):
            self._note(sampler)

    def _recorded(self, iterator: Iterator[Any], sampler: Any, *_: Any, **__: Any) -> Iterator[Any]:
        start = self._note(sampler)
        return iterator if start is None else self._reads(iterator, start)

    def _note(self, sampler: Any) -> _Start | None:
        """The new start; None if this is not training."""
        self._starts = [start for start in self._starts if start.sampler() is not None and (start.steps or start.read)]
        self._starts = self._starts[-_REMEMBERED:]
        if not torch.is_grad_enabled() or not self.setup.model.training:
            return None
        start = _Start(weakref.ref(sampler), int(getattr(sampler, "epoch", 0)), self._seeded or user_line())
        start.seeded = self._seeded is not None
        self._seeded = None
        self._starts.append(start)
        self._reads_now(start)
        return start

    def _reads_now(self, start: _Start) -> None:
        if self._stepped:
            self._reading, self._stepped = [], False
        if not any(other is start for other in self._reading):
            self._reading.append(start)

    def _reads(self, iterator: Iterator[Any], start: _Start) -> Iterator[Any]:
        for index in iterator:
            self._reads_now(start)
            start.read += 1
            if len(start.indices) < _COMPARED:
                start.indices.append(index)
            yield index


def _epochs(starts: list[_Start]) -> Iterator[RepeatedEpoch]:
    """The epochs for which a DistributedSampler was iterated more than once."""
    if not isinstance(starts[0].sampler(), DistributedSampler):
        return
    by_epoch: dict[int, list[_Start]] = {}
    for start in starts:
        if start.steps:
            by_epoch.setdefault(start.epoch, []).append(start)
    for epoch, same in by_epoch.items():
        if len(same) > 1:
            yield RepeatedEpoch(type(same[0].sampler()).__name__, epoch, len(same), same[1].at)


def _orders(starts: list[_Start]) -> Iterator[RepeatedOrder]:
    """Whether an order of a sampler that shuffles came back."""
    sampler = starts[0].sampler()
    if not isinstance(sampler, RandomSampler | SubsetRandomSampler):
        return
    trained = [start for start in starts if start.steps and len(set(map(str, start.indices))) >= _FEWEST]
    seen: list[list[Any]] = []
    again: list[_Start] = []
    compared = 0
    for start in trained:
        common = [
            length
            for earlier in seen
            if (length := min(len(earlier), len(start.indices))) and earlier[:length] == start.indices[:length]
        ]
        if common:
            again.append(start)
            compared = max(compared, *common)
        seen.append(start.indices)
    if again:
        first = again[0]
        name = type(sampler).__name__
        yield RepeatedOrder(name, len(trained), len(again), compared, first.at, first.seeded)


def _same_batch(starts: list[_Start]) -> Iterator[SameBatch]:
    """Whether a loader that is started again for each step was read no further than the same first indices."""
    sampler = starts[0].sampler()
    if not isinstance(sampler, Sized):
        return
    read, size, steps = max(start.read for start in starts), len(sampler), sum(start.alone for start in starts)
    first = min((start.indices for start in starts), key=len)
    alike = bool(first) and all(start.indices[: len(first)] == first for start in starts)
    if alike and SAME_BATCHES <= steps <= len(starts) and 2 * read <= size:
        yield SameBatch(type(sampler).__name__, steps, read, size, starts[-1].at)

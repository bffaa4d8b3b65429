"""Hears each time a distributed sampler is started, and for which epoch."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch.utils.data.distributed import DistributedSampler

from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.monitor.patches import Patches
from debugkit.observations.epoch_orders import RepeatedEpoch, TrainedEpochs
from debugkit.probes import Probe, probe


@dataclass
class _Start:
    """One `iter(sampler)`, and whether the model was trained before the next one."""

    sampler: weakref.ref[Any]
    epoch: int
    at: SourceLine | None
    trained: bool = False


@probe(TrainedEpochs)
class TrainedEpochsProbe(Probe[TrainedEpochs]):
    """Tells of the whole run, and keeps one entry for each start that steps followed."""

    def __enter__(self) -> Self:
        self._starts: list[_Start] = []
        self._patches = Patches()
        self._patches.__enter__()
        for sampler in (DistributedSampler, *_subclasses(DistributedSampler)):
            if "__iter__" in vars(sampler):
                self._patches.around(sampler, "__iter__", before=self._started)
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.__exit__(None, None, None)

    def after_optimizer_step(self, _optimizer: torch.optim.Optimizer, /) -> None:
        if self._starts:
            self._starts[-1].trained = True

    @property
    def observation(self) -> TrainedEpochs:
        trained = [start for start in self._starts if start.trained]
        if not trained:
            raise NotExamined("No DistributedSampler that shuffles was started in the loop.")
        seen: dict[tuple[int, int], list[_Start]] = {}
        for start in trained:
            seen.setdefault((id(start.sampler()), start.epoch), []).append(start)
        repeated = [
            RepeatedEpoch(type(starts[0].sampler()).__name__, epoch, len(starts), starts[1].at)
            for (_, epoch), starts in seen.items()
            if len(starts) > 1 and starts[0].sampler() is not None
        ]
        return TrainedEpochs(tuple(repeated), len(trained))

    def _started(self, sampler: Any, *_: Any, **__: Any) -> None:
        self._starts = [start for start in self._starts if start.trained and start.sampler() is not None][-256:]
        validates = not torch.is_grad_enabled() or not self.subject.model.training
        if getattr(sampler, "shuffle", False) and not validates:
            self._starts.append(_Start(weakref.ref(sampler), int(getattr(sampler, "epoch", 0)), user_line()))


def _subclasses(cls: type) -> Iterator[type]:
    subclass: type
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)

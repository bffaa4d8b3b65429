"""Record each iteration of a distributed sampler, and its epoch."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch.utils.data.distributed import DistributedSampler

from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.probe import Probe
from debugkit.recorders.patches import Patches
from debugkit.rules.dk703_epoch_order_repeats import RepeatedEpoch, TrainedEpochs


@dataclass
class _Start:
    """One `iter(sampler)`, and whether the model was trained before the next one."""

    sampler: weakref.ref[Any]
    epoch: int
    at: SourceLine | None
    trained: bool = False


class TrainedEpochsProbe(Probe[TrainedEpochs]):
    """Observes the whole run; keeps one entry for each iteration that was followed by training steps."""

    def __enter__(self) -> Self:
        self._starts: list[_Start] = []
        self._patches = Patches()
        self._patches.__enter__()
        self._patches.around_overrides(DistributedSampler, "__iter__", before=self._started)
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
            raise NotExamined("The loop iterated no DistributedSampler that shuffles.")
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
        validates = not torch.is_grad_enabled() or not self.setup.model.training
        if getattr(sampler, "shuffle", False) and not validates:
            self._starts.append(_Start(weakref.ref(sampler), int(getattr(sampler, "epoch", 0)), user_line()))

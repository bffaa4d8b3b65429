"""Publish digests of this rank's first training batches, and compare them with those of the other ranks."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn

from debugkit._torch_private import in_backward
from debugkit.distributed.digest_exchange import DigestExchange
from debugkit.distributed.digests import digest, read_digests
from debugkit.distributed.wrappers import is_distributed, wrappers_of
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.probe import Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk806_same_batch_on_ranks import STEPS, RankBatches
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in


class RankBatchesProbe(Probe[RankBatches]):
    """Reads the arguments of the wrapper's first call in training in each of the first steps."""

    complete_after = "done"

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        if not is_distributed() or torch.distributed.get_world_size() == 1:
            raise NotExamined("There are no other ranks: enter watch() after init_process_group(), on every rank.")
        wrappers = wrappers_of(setup.model)
        if not wrappers:
            raise NotExamined("Neither DistributedDataParallel nor FullyShardedDataParallel wraps this model.")
        group = getattr(wrappers[0], "process_group", None)
        if group is not None and group.size() != torch.distributed.get_world_size():
            raise NotExamined("The wrapper divides the data between a part of the ranks only.")
        self._exchange = DigestExchange("batches")
        self._calls = ModuleCalls([("", wrappers[0])], before=self._called)
        self._batch: list[Tensor] = []  # digests, on the device of the batch
        self._at: SourceLine | None = None
        self._published: dict[int, tuple[int, ...]] = {}  # by step
        self._equal: dict[int, dict[int, bool]] = {}  # step → other rank → whether its batch was that of this rank

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._calls.remove()

    def end_step(self, step: int, /) -> None:
        if self._batch:
            mine = read_digests(self._batch)
            self._batch = []
            self._published[step] = tuple(mine)
            self._exchange.publish(step, mine)
            if len(self._published) == STEPS:
                self._calls.remove()
        self._compare()

    def loop_ended(self) -> None:
        self._exchange.wait_for_the_rest(self._compare, lambda: False)

    @property
    def observation(self) -> RankBatches:
        others = {rank for ranks in self._equal.values() for rank in ranks}
        equal = {rank for rank in others if all(ranks.get(rank, True) for ranks in self._equal.values())}
        return RankBatches(
            rank=self._exchange.rank,
            world_size=self._exchange.world_size,
            first=min(self._equal, default=0),
            steps=len(self._equal),
            different=len({self._published[step] for step in self._equal}),
            equal=tuple(sorted({self._exchange.rank, *equal})) if equal else (),
            at=self._at,
        )

    def _called(self, _path: str, wrapper: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._batch or not torch.is_grad_enabled() or not wrapper.training or in_backward():
            return
        given = [tensor for _, tensor in tensors_in((args, kwargs))]
        self._batch = [digest(tensor) for tensor in given if tensor.numel() > 1 and not tensor.is_meta]
        self._at = self._at or user_line()

    def _compare(self) -> None:
        for step, held in self._exchange.compared():
            own = self._exchange.rank
            self._equal[step] = {rank: theirs == held[own] for rank, theirs in held.items() if rank != own}

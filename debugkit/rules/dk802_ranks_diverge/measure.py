"""Publish the digests of this rank's parameters after each step, and compare them with those of the other ranks.

No rank waits: each compares the digests that are available, so the compared step can be a few steps old.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from debugkit._torch_private import communication_hooks
from debugkit.distributed.message_store import MessageStore
from debugkit.distributed.wrappers import is_distributed, wrapped_module, wrappers_of
from debugkit.finding import NotExamined
from debugkit.module_paths import plain_path
from debugkit.probe import SAMPLED_EVERY, Probe
from debugkit.rules.dk802_ranks_diverge import Divergence, RankDigests
from debugkit.rules.dk802_ranks_diverge.digests import digests
from debugkit.setup import TrainingSetup

_KEPT = 16
"""Sampled steps for which digests are kept; a rank that is further behind is not compared in older ones."""
_FINAL_WAIT_S = 3.0
"""At the end of the loop, for ranks that have published digests before."""


class RankDigestsProbe(Probe[RankDigests]):
    """Makes one pass over the parameters and publishes one small message in each sampled step."""

    complete_after = "done"
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        if not is_distributed() or torch.distributed.get_world_size() == 1:
            raise NotExamined("There are no other ranks: enter watch() after init_process_group(), on every rank.")
        wrappers = [w for w in wrappers_of(setup.model) if isinstance(w, DistributedDataParallel)]
        self._wrapped = bool(wrappers)
        self._parameters = _shared_parameters(setup, wrappers)
        if not self._parameters:
            raise NotExamined("This model has no parameter that should be equal on every rank.")
        self._store = MessageStore("digests")
        self._held: dict[int, dict[int, list[int]]] = {}  # step → rank → digests, until all ranks have published
        self._compared: set[int] = set()
        self._active: set[int] = set()  # ranks that have published digests
        self._first: Divergence | None = None

    def end_step(self, step: int, /) -> None:
        if self._first is not None:
            return
        mine = digests(self._parameters.values())
        self._store.put(f"step/{step}", mine)
        self._held[step] = {self._store.rank: mine}
        for old in [old for old in self._held if old <= step - _KEPT * SAMPLED_EVERY]:
            del self._held[old]
        self._compare()

    def loop_ended(self) -> None:
        deadline = time.monotonic() + _FINAL_WAIT_S
        self._compare()
        while self._active and self._held and self._first is None and time.monotonic() < deadline:
            time.sleep(0.05)
            self._compare()

    @property
    def observation(self) -> RankDigests:
        return RankDigests(self._store.rank, self._store.world_size, self._wrapped, len(self._compared), self._first)

    def _compare(self) -> None:
        """Read the digests of other ranks for the steps that are not fully compared yet, oldest first."""
        for step, held in sorted(self._held.items()):
            for rank in [rank for rank in self._store.others if rank not in held]:
                theirs = self._store.get(f"step/{step}", rank)
                if theirs is not None and len(theirs) == len(self._parameters):  # otherwise it is another model
                    held[rank] = theirs
                    self._active.add(rank)
            if len(held) == 1:
                continue
            self._compared.add(step)
            self._first = first_divergence(step, list(self._parameters), held)
            if self._first is not None:
                return
            if len(held) == self._store.world_size:
                del self._held[step]


def first_divergence(step: int, names: Sequence[str], held: Mapping[int, Sequence[int]]) -> Divergence | None:
    """The first tensor on which ranks differ; `held` is rank → digests in the order of `names`."""
    different = [place for place in range(len(names)) if len({values[place] for values in held.values()}) > 1]
    if not different:
        return None
    groups: dict[int, list[int]] = {}
    for rank in sorted(held):
        groups.setdefault(held[rank][different[0]], []).append(rank)
    return Divergence(step, names[different[0]], len(different), len(names), tuple(map(tuple, groups.values())))


def _shared_parameters(setup: TrainingSetup, wrappers: Sequence[DistributedDataParallel]) -> dict[str, Tensor]:
    """The parameters that should be equal on all ranks: those in DDP, or all of a model without DDP and FSDP.

    Buffers are left out: DDP synchronises running statistics only at the next forward, so after a step they differ.
    """
    paths = setup.module_paths
    found: dict[str, Tensor] = {}
    for wrapper in wrappers:
        if "localsgd" in str(communication_hooks(wrapper)).lower().replace("_", ""):
            continue  # ranks differ on purpose until the next averaging
        inner = wrapped_module(wrapper)
        prefix = f"{paths[inner]}." if paths.get(inner) else ""
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()))
        named = {name: p for name, p in inner.named_parameters() if name not in ignored}
        found |= {prefix + plain_path(name): p for name, p in named.items()}
    if not wrappers and not any(type(m).__name__.startswith(("FSDP", "FullyShard")) for m in setup.model.modules()):
        found = {plain_path(name): p for name, p in setup.model.named_parameters()}
    return {name: p for name, p in found.items() if type(p) is torch.nn.Parameter and p.numel() and not p.is_meta}

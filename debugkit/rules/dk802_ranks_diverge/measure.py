"""Publish the digests of this rank's parameters after each step, and compare them with those of the other ranks.

No rank waits: each compares the digests that are available, so the compared step can be a few steps old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from debugkit._torch_private import communication_hooks
from debugkit.distributed.digest_exchange import DigestExchange
from debugkit.distributed.digests import digests
from debugkit.distributed.wrappers import is_distributed, wrapped_module, wrappers_of
from debugkit.finding import NotExamined
from debugkit.module_paths import plain_path
from debugkit.probe import SAMPLED_EVERY, Probe
from debugkit.rules.dk802_ranks_diverge import Divergence, RankDigests
from debugkit.setup import TrainingSetup

_KEPT = 16
"""Sampled steps for which digests are kept; a rank that is further behind is not compared in older ones."""


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
        self._exchange = DigestExchange("digests")
        self._compared: set[int] = set()
        self._first: Divergence | None = None

    def end_step(self, step: int, /) -> None:
        if self._first is not None:
            return
        self._exchange.publish(step, digests(self._parameters.values()))
        self._exchange.forget_before(step - _KEPT * SAMPLED_EVERY + 1)
        self._compare()

    def loop_ended(self) -> None:
        self._exchange.wait_for_the_rest(self._compare, lambda: self._first is not None)

    @property
    def observation(self) -> RankDigests:
        exchange = self._exchange
        return RankDigests(exchange.rank, exchange.world_size, self._wrapped, len(self._compared), self._first)

    def _compare(self) -> None:
        """Compare the steps that are not fully compared yet, oldest first."""
        if self._first is not None:
            return
        for step, held in self._exchange.compared():
            self._compared.add(step)
            self._first = first_divergence(step, list(self._parameters), held)
            if self._first is not None:
                return


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

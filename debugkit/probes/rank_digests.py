"""Leaves the digests of this rank's parameters for the others after each step, and compares with theirs when they come.

Nobody waits: a rank compares what it finds, so the step that is compared may lie a little back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from debugkit.distributed.digests import digests
from debugkit.distributed.mailbox import Mailbox
from debugkit.distributed.wrappers import is_distributed, wrapped_module, wrappers_of
from debugkit.finding import NotExamined
from debugkit.observations.rank_digests import Divergence, RankDigests
from debugkit.probes import SAMPLED_EVERY, Probe, probe
from debugkit.subject import Subject, plain_path

_KEPT = 16
"""Steps that a letter is left for; a rank that lags further behind is not compared there."""
_PATIENCE_S = 3.0
"""At the end of the loop, for ranks that were heard of before."""


@probe(RankDigests, complete_after="done", watch_every=SAMPLED_EVERY)
class RankDigestsProbe(Probe[RankDigests]):
    """One pass over the parameters and one small letter a step."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        if not is_distributed() or torch.distributed.get_world_size() == 1:
            raise NotExamined(
                "This process has no other rank: enter watch() after init_process_group(), on every rank."
            )
        wrappers = [w for w in wrappers_of(subject.model) if isinstance(w, DistributedDataParallel)]
        self._wrapped = bool(wrappers)
        self._parameters = _alike(subject, wrappers)
        if not self._parameters:
            raise NotExamined("No parameter of this model is meant to be alike on every rank.")
        self._mail = Mailbox("digests")
        self._held: dict[int, dict[int, list[int]]] = {}  # step → rank → digests, until all ranks' have come
        self._compared: set[int] = set()
        self._met: set[int] = set()  # ranks that have left a letter
        self._first: Divergence | None = None

    def end_step(self, step: int, /) -> None:
        if self._first is not None:
            return
        mine = digests(self._parameters.values())
        self._mail.post(f"step/{step}", mine)
        self._held[step] = {self._mail.rank: mine}
        for old in [old for old in self._held if old <= step - _KEPT * SAMPLED_EVERY]:
            del self._held[old]
        self._compare()

    def loop_ended(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        self._compare()
        while self._met and self._held and self._first is None and time.monotonic() < deadline:
            time.sleep(0.05)
            self._compare()

    @property
    def observation(self) -> RankDigests:
        return RankDigests(self._mail.rank, self._mail.world_size, self._wrapped, len(self._compared), self._first)

    def _compare(self) -> None:
        """Pick up what others have left for the steps that not all were compared in, oldest first."""
        for step, held in sorted(self._held.items()):
            for rank in [rank for rank in self._mail.others if rank not in held]:
                letter = self._mail.read(f"step/{step}", rank)
                if letter is not None and len(letter) == len(self._parameters):  # else it is another model
                    held[rank] = letter
                    self._met.add(rank)
            if len(held) == 1:
                continue
            self._compared.add(step)
            self._first = first_divergence(step, list(self._parameters), held)
            if self._first is not None:
                return
            if len(held) == self._mail.world_size:
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


def _alike(subject: Subject, wrappers: Sequence[DistributedDataParallel]) -> dict[str, Tensor]:
    """The parameters that ranks should share: what DDP wraps, or all of a model that nothing wraps or shards.

    Buffers are left out: DDP evens out running statistics at the next forward, so after a step they differ.
    """
    paths = subject.module_paths
    found: dict[str, Tensor] = {}
    for wrapper in wrappers:
        if "localsgd" in str(getattr(wrapper, "_comm_hooks", "")).lower().replace("_", ""):
            continue  # ranks part on purpose between two averagings
        inner = wrapped_module(wrapper)
        prefix = f"{paths[inner]}." if paths.get(inner) else ""
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()))
        named = {name: p for name, p in inner.named_parameters() if name not in ignored}
        found |= {prefix + plain_path(name): p for name, p in named.items()}
    if not wrappers and not any(type(m).__name__.startswith(("FSDP", "FullyShard")) for m in subject.model.modules()):
        found = {plain_path(name): p for name, p in subject.model.named_parameters()}
    return {name: p for name, p in found.items() if type(p) is torch.nn.Parameter and p.numel() and not p.is_meta}

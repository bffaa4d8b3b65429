"""Reads the parameter groups of every optimizer: which parameters are frozen, foreign, missing or held twice."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import torch

from debugkit.held_parameters import held_parameters
from debugkit.interventions.program_lines import built_at
from debugkit.measurements.found_optimizers import FoundOptimizers
from debugkit.measurements.optimizer_groups import Duplicate, Group, OptimizerGroups, Orphan, Stranger
from debugkit.probe import SAMPLED_EVERY, SETTLING_STEPS, Probe
from debugkit.recorders.master_weights import masters
from debugkit.setup import TrainingSetup

Held = list[tuple[int, str, dict[str, Any]]]
"""(optimizer's number, group's name, the group itself)"""


class OptimizerGroupsProbe(Probe[OptimizerGroups]):
    """Observes backward and the steps of all optimizers, also of those that were not passed in."""

    partial = True
    watch_first = SETTLING_STEPS
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._found = FoundOptimizers(setup)
        self._optimizers = self._found.known
        self._with_gradient: set[int] = set()  # id() of tensors
        self._frozen: dict[int, int] = {}  # id() of a group → its frozen parameters when its optimizer last stepped
        self._turns: list[int] = []  # id() of the optimizers that stepped, without immediate repetitions

    def after_backward(self) -> None:
        held = held_parameters(*self._optimizers)
        self._with_gradient |= {id(p) for p in (*self.setup.model.parameters(), *held) if p.grad is not None}

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        self._found.stepped(optimizer)
        self._frozen |= {id(group): _frozen_in(group) for group in optimizer.param_groups}
        if self._turns[-1:] != [id(optimizer)]:
            self._turns = [*self._turns[-15:], id(optimizer)]

    def loop_ended(self) -> None:
        self._found.ended()

    @property
    def observation(self) -> OptimizerGroups:
        self._found.require_all()
        held = self._held()
        own = {id(p): p for p in self.setup.model.parameters()}
        copies = masters(own.values(), (p for _, _, group in held for p in group["params"]))
        everything = {id(p) for _, _, group in held for p in group["params"]} | copies.keys()
        return OptimizerGroups(
            optimizers=len(self._optimizers),
            groups=tuple(self._group(number, name, group, own) for number, name, group in held),
            strangers=self._strangers(held, own, set(copies.values())),
            orphans=tuple(
                Orphan(self.setup.parameter_paths[key], tuple(p.shape), p.numel())
                for key, p in own.items()
                if p.requires_grad and key not in everything and key in self._with_gradient
            ),
            duplicates=self._duplicates(held),
            built=tuple(built_at(optimizer, self.setup) for optimizer in self._optimizers),
        )

    def _held(self) -> Held:
        """Every group. Groups that a wrapper shares with the optimizer it wraps count once."""
        held: Held = []
        seen: set[int] = set()
        for number, optimizer in enumerate(self._optimizers):
            kind = type(optimizer).__name__
            alike = sum(type(other) is type(optimizer) for other in self._optimizers)
            label = f"{kind} {number}" if alike > 1 else kind
            for index, group in enumerate(optimizer.param_groups):
                if id(group) not in seen:
                    seen.add(id(group))
                    held.append((number, f"{label} group {index}", group))
        return held

    def _group(self, number: int, name: str, group: dict[str, Any], own: dict[int, torch.nn.Parameter]) -> Group:
        rate, decay = group.get("lr"), group.get("weight_decay")
        frozen = self._frozen.get(id(group))
        return Group(
            name=name,
            optimizer=number,
            held=len(group["params"]),
            frozen=_frozen_in(group) if frozen is None else frozen,
            of_the_model=sum(id(p) in own for p in group["params"]),
            learning_rate=None if rate is None else float(rate),
            weight_decay=float(decay) if isinstance(decay, int | float) else None,
            vectors=sum(p.requires_grad and p.ndim == 1 and id(p) in own for p in group["params"]),
        )

    def _strangers(self, held: Held, own: dict[int, torch.nn.Parameter], copies: set[int]) -> tuple[Stranger, ...]:
        mixed = {number for number, _, group in held if any(id(p) in own for p in group["params"])}
        return tuple(
            Stranger(name, tuple(p.shape), p.numel(), number in mixed)
            for number, name, group in held
            for p in group["params"]
            if id(p) not in own and id(p) not in copies and id(p) not in self._with_gradient
        )

    def _duplicates(self, held: Held) -> tuple[Duplicate, ...]:
        places: dict[int, list[tuple[int, str]]] = {}
        for number, name, group in held:
            for parameter in group["params"]:
                places.setdefault(id(parameter), []).append((number, name))
        return tuple(
            Duplicate(
                path=self.setup.parameter_paths.get(key),
                groups=tuple(name for _, name in found),
                one_optimizer=len({number for number, _ in found}) < len(found),
                alternations=self._alternations({number for number, _ in found}),
            )
            for key, found in places.items()
            if len(found) > 1
        )

    def _alternations(self, numbers: set[int]) -> int:
        """How often a step of one of these optimizers was followed by a step of another of them.

        One that had its turn only once was replaced by the next, as where a new optimizer is built for a lower rate.
        """
        mine = {id(self._optimizers[number]) for number in numbers}
        turns = [turn for turn in self._turns if turn in mine]
        again = {turn for turn, times in Counter(turns).items() if times > 1}
        turns = [turn for turn in turns if turn in again]
        return sum(before != after for before, after in itertools.pairwise(turns))


def _frozen_in(group: dict[str, Any]) -> int:
    return sum(not p.requires_grad for p in group["params"])

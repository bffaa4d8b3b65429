"""Records whether the groups of an optimizer keep the different learning rates that it was built with."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from torch.optim import Optimizer

from debugkit.finding import SourceLine
from debugkit.loop.group_rates import GroupRates
from debugkit.loop.learning_rates import rate_of

_MOST = 64


@dataclass
class _Record:
    optimizer: weakref.ref[Optimizer]
    number: int
    built: tuple[float, ...]
    at: SourceLine | None
    now: tuple[float, ...] = ()
    first: float = 0.0
    """The first rate of all groups."""
    equal_steps: int = 0
    different_steps: int = 0
    last_different: int = -1
    trainable: set[int] = field(default_factory=set)


class GroupRateHistory:
    """Records the optimizers that are built with different rates while the loop is watched."""

    def __init__(self) -> None:
        self._built: weakref.WeakKeyDictionary[Optimizer, tuple[tuple[float, ...], SourceLine | None]] = (
            weakref.WeakKeyDictionary()
        )
        self._records: dict[int, _Record] = {}

    @property
    def observation(self) -> tuple[GroupRates, ...]:
        return tuple(_read(record) for record in self._records.values())

    def built(self, optimizer: Optimizer, at: SourceLine | None) -> None:
        """An optimizer has its groups, and has not made a step."""
        rates = _rates(optimizer.param_groups)
        if len(set(rates)) > 1:
            self._built[optimizer] = rates, at

    def stepped(self, optimizer: Optimizer, number: int) -> None:
        """An optimizer has made a step."""
        known = self._built.get(optimizer)
        if known is None or (number not in self._records and len(self._records) == _MOST):
            return
        built, at = known
        record = self._records.setdefault(number, _Record(weakref.ref(optimizer), number, built, at))
        record.now = _rates(optimizer.param_groups)
        record.trainable.update(
            index
            for index, group in enumerate(optimizer.param_groups)
            if any(parameter.requires_grad for parameter in group["params"])
        )
        if len(record.now) == len(built) and len(set(record.now)) == 1 and record.now[0] > 0:
            record.first = record.first or record.now[0]
            record.equal_steps += 1
        else:
            record.last_different = record.equal_steps + record.different_steps
            record.different_steps += 1


def _read(record: _Record) -> GroupRates:
    optimizer = record.optimizer()
    return GroupRates(
        optimizer=record.number,
        built=tuple(rate for index, rate in enumerate(record.built) if index in record.trainable),
        now=record.now if optimizer is None else _rates(optimizer.param_groups),
        at=record.at,
        first=record.first,
        equal_steps=record.equal_steps,
        different_steps=record.different_steps,
        last_different=record.last_different,
    )


def _rates(groups: list[dict[str, Any]]) -> tuple[float, ...]:
    """The rate of each group; none if one of them is not known."""
    rates = tuple(rate for group in groups if (rate := rate_of(group)) is not None)
    return rates if len(rates) == len(groups) else ()

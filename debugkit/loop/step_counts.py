"""How many steps a run had: taken, skipped by a GradScaler, and made by optimizers that are not watched."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass

from torch.optim import Optimizer

from debugkit.held_parameters import held_parameters
from debugkit.rule_text import counted


@dataclass(frozen=True)
class StepCounts:
    """`taken` and `skipped` are those of the watched optimizers; `foreign` used parameters of them.

    >>> str(StepCounts(taken=6, foreign=1))
    '6 steps watched, 1 further step by an optimizer that was not passed to watch()'
    """

    taken: int = 0
    skipped: int = 0
    foreign: int = 0

    @property
    def attempted(self) -> int:
        """Steps with those that were skipped."""
        return self.taken + self.skipped

    def __str__(self) -> str:
        parts = [f"{counted(self.taken, 'step')} watched"]
        if self.skipped:
            parts.append(f"{self.skipped:,} skipped by a GradScaler")
        if self.foreign:
            parts.append(f"{counted(self.foreign, 'further step')} by an optimizer that was not passed to watch()")
        return ", ".join(parts)


class ForeignSteps:
    """Counts the steps of other optimizers than `given` that hold one of their parameters."""

    def __init__(self, given: Iterable[Optimizer]) -> None:
        self._given = weakref.WeakSet(given)
        self._overlaps: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()
        self.count = 0

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer that is not watched has stepped."""
        if optimizer not in self._overlaps:
            watched = {id(parameter) for parameter in held_parameters(*self._given)}
            self._overlaps[optimizer] = not watched.isdisjoint(map(id, held_parameters(optimizer)))
        self.count += self._overlaps[optimizer]

"""Which model a program trains now: it may pretrain an encoder, then train a policy; a teacher, then its student."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from torch import nn
from torch.optim import Optimizer

from debugkit.held_parameters import held_parameters

ENOUGH = 8
"""Steps that move only other models, before another stage has begun. A critic may take five for each of the actor's."""
_MOST = 3
"""Stages after the first one. Each is examined as thoroughly, and a loop may train a model for each fold or task."""


class Stages:
    """The stages of a run that has begun with `model`. Call `stepped` after each step of an optimizer."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        """That of the present stage."""
        self._elsewhere = self._begun = 0
        self._recent: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._moved: weakref.WeakKeyDictionary[Optimizer, tuple[tuple[int, ...], weakref.ref[nn.Module] | None]] = (
            weakref.WeakKeyDictionary()
        )

    def stepped(self, optimizer: Optimizer, models: Sequence[nn.Module]) -> bool:
        """Whether another stage has begun: the optimizers now move another one of the watched `models`."""
        moved = self._moved_by(optimizer, models)
        if moved is self.model:
            self._elsewhere = 0
            self._recent.clear()
        elif moved is not None and self._begun < _MOST:
            self._elsewhere += 1
            self._recent.add(optimizer)
            if self._elsewhere == ENOUGH:
                self._elsewhere, self._begun, self.model = 0, self._begun + 1, moved
                return True
        return False

    @property
    def optimizers(self) -> list[Optimizer]:
        """Those that have stepped since the last step for the model of the stage before."""
        return list(self._recent)

    def _moved_by(self, optimizer: Optimizer, models: Sequence[nn.Module]) -> nn.Module | None:
        """`model` if the optimizer holds a parameter of it; otherwise the one of `models` of which it holds most.

        A model that has become a part of another one is no longer among `models`.
        """
        known = self._moved.get(optimizer)
        key = (id(self.model), *map(id, models))
        if known is None or known[0] != key:
            held = {id(parameter) for parameter in held_parameters(optimizer)}
            counts = {one: sum(id(p) in held for p in one.parameters()) for one in models}
            most = max(counts, key=lambda one: (one is self.model and counts[one] > 0, counts[one]), default=None)
            known = self._moved[optimizer] = (key, weakref.ref(most) if most is not None and counts[most] else None)
        return None if known[1] is None else known[1]()

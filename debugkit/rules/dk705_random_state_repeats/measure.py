"""Hash the global random states at the ends of the steps, and record the lines that seed one of them."""

from __future__ import annotations

import random
import sys
from typing import Any, Self

import torch

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.probe import Probe
from debugkit.recorders.patches import Patches
from debugkit.rules.dk705_random_state_repeats import RandomStates, RepeatedStates
from debugkit.rules.dk705_random_state_repeats.state_hashes import state_hashes
from debugkit.setup import TrainingSetup

_ALWAYS = 64  # steps after which states are hashed; later only where a known function seeded
_REMEMBERED = 4096


class _Generator:
    """The states of one generator so far."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}  # hash → step
        self.last: int | None = None
        self.changed = False
        self.times = 0
        self.pair = (0, 0)
        self.at: SourceLine | None = None

    def note(self, state: int, step: int, at: SourceLine | None) -> None:
        self.changed |= self.last not in (None, state)
        if self.changed and state != self.last and state in self.seen:
            self.times += 1
            if self.times == 1:
                self.pair, self.at = (self.seen[state], step), at
        elif len(self.seen) < _REMEMBERED:
            self.seen.setdefault(state, step)
        self.last = state


class RandomStatesProbe(Probe[RandomStates]):
    """Draws nothing and changes no state."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._steps = 0
        self._generators: dict[str, _Generator] = {}
        self._seeded = False
        self._at: dict[str, SourceLine | None] = {}
        self._patches = Patches()

    def __enter__(self) -> Self:
        self._patches = Patches().__enter__()
        for owner in (torch, torch.random):
            for name in ("manual_seed", "set_rng_state"):
                self._patches.around(owner, name, after=lambda *_, **__: self._seeds("torch"))
        for name in ("seed", "setstate"):
            self._patches.around(random, name, after=lambda *_, **__: self._seeds("python"))
        if (numpy := sys.modules.get("numpy")) is not None:
            for name in ("seed", "set_state"):
                self._patches.around(numpy.random, name, after=lambda *_, **__: self._seeds("numpy"))
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.__exit__(None, None, None)

    def _seeds(self, generator: str) -> None:
        self._seeded = True
        self._at[generator] = user_line()

    def end_step(self, step: int, /) -> None:
        self._steps += 1
        if self._steps > _ALWAYS and not self._seeded:
            for generator in self._generators.values():
                generator.last = None  # unknown
            return
        self._seeded = False
        for name, state in state_hashes().items():
            known: Any = self._generators.setdefault(name, _Generator())
            known.note(state, step, self._at.get("torch" if name == "cuda" else name))

    @property
    def observation(self) -> RandomStates:
        repeated = tuple(
            RepeatedStates(name, each.times, *each.pair, each.at)
            for name, each in self._generators.items()
            if each.times
        )
        return RandomStates(self._steps, any(each.changed for each in self._generators.values()), repeated)

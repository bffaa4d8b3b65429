"""Hash the global random states at the ends of the steps, and record the lines that seed one of them."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from debugkit.finding import SourceLine
from debugkit.frames import own_line
from debugkit.probe import Probe
from debugkit.recorders.patches import Patches
from debugkit.rules.dk705_random_state_repeats import RandomStates, RepeatedStates
from debugkit.rules.dk705_random_state_repeats.seeded_steps import SeededSteps, grad_modes
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
        self._contexts = Patches()
        self._in_steps = SeededSteps(setup.model)

    def __enter__(self) -> Self:
        self._patches = Patches().__enter__()
        around = self._patches.around
        for owner in (torch, torch.random):
            around(owner, "manual_seed", after=lambda seed, *_, **__: self._seeds("torch", seed))
            around(owner, "set_rng_state", after=lambda *_, **__: self._restores("torch"))
            around(owner, "seed", after=lambda *_, **__: self._in_steps.restored("torch"))
        around(random, "seed", after=lambda a=None, *_, **__: self._seeds("python", a))
        around(random, "setstate", after=lambda *_, **__: self._restores("python"))
        if (numpy := sys.modules.get("numpy")) is not None:
            around(numpy.random, "seed", after=lambda seed=None, *_, **__: self._seeds("numpy", seed))
            around(numpy.random, "set_state", after=lambda *_, **__: self._restores("numpy"))
        self._contexts = Patches().__enter__()
        for kind, name in grad_modes():
            self._contexts.around(kind, name, before=lambda *_, **__: self._in_steps.boundary())
        self._contexts.around(nn.Module, "train", before=self._sets_mode)
        return self

    def __exit__(self, *error: object) -> None:
        self._contexts.__exit__(None, None, None)
        self._patches.__exit__(None, None, None)

    def _seeds(self, generator: str, seed: object) -> None:
        self._seeded = True
        self._at[generator] = own_line()
        self._in_steps.seeded(generator, seed, self._at[generator])

    def _restores(self, generator: str) -> None:
        self._seeded = True
        self._at[generator] = own_line()
        self._in_steps.restored(generator)

    def _sets_mode(self, module: nn.Module, *_: Any, **__: Any) -> None:
        if module is self.setup.model:
            self._in_steps.boundary()

    def before_backward(self, _losses: Sequence[Tensor], /) -> None:
        self._in_steps.before_backward()

    def before_optimizer_step(self, optimizer: Optimizer, /) -> None:
        self._in_steps.stepped(optimizer)
        if self._in_steps.over:
            self._contexts.__exit__(None, None, None)

    def end_step(self, step: int, /) -> None:
        self._steps += 1
        self._in_steps.end_step()
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
        moving = any(each.changed for each in self._generators.values())
        return RandomStates(self._steps, moving, repeated, self._in_steps.found, self._in_steps.drawn)

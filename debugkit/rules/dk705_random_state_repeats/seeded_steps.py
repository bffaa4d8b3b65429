"""Follow the steps in which the program seeds a global generator and then draws numbers that it trains with."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim import Optimizer

from debugkit._torch_private import in_backward
from debugkit.finding import SourceLine
from debugkit.rules.dk705_random_state_repeats import SeededEachStep
from debugkit.rules.dk705_random_state_repeats.state_hashes import state_hash

FOLLOWED = 16
"""The steps of optimizers that are followed: a loop that seeds in each step does so in the first ones."""
_SEEDED_BY = {"torch": ("torch", "cuda"), "python": ("python",), "numpy": ("numpy",)}
_FOR_CLOSURES = (torch.optim.LBFGS,)
"""Compare several values of one loss, so its random numbers are the same on purpose."""

_Context = tuple[bool, bool]
"""Whether gradients are recorded, and whether the model is in train mode."""


@dataclass
class _Seeded:
    """A generator that was seeded in the present step and not restored."""

    seed: int | None
    at: SourceLine | None
    states: set[int]
    """The states directly after each call that seeded it: their number is that of the different seeds."""
    last: int
    drew_in: set[_Context] = field(default_factory=set)
    """The contexts in which its state changed before the backward pass."""
    complete: bool = False


@dataclass
class _Streak:
    """Consecutive steps of one optimizer that began to draw from the same state."""

    optimizer: weakref.ref[Optimizer]
    state: int
    at: SourceLine | None
    seed: int | None
    steps: int = 0


class SeededSteps:
    """A state is hashed only in a step in which its generator was seeded."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.steps = 0
        self.drawn = False
        """Whether any number was drawn after a seed."""
        self._seeded: dict[str, _Seeded] = {}
        self._streaks: dict[tuple[int, str], _Streak] = {}
        self._found: dict[tuple[str, SourceLine | None], SeededEachStep] = {}

    @property
    def found(self) -> tuple[SeededEachStep, ...]:
        """The longest streak of each generator and line."""
        return tuple(self._found.values())

    @property
    def over(self) -> bool:
        """Whether no more steps are followed."""
        return self.steps >= FOLLOWED

    def seeded(self, generator: str, seed: object, at: SourceLine | None) -> None:
        """The program has seeded a generator. `seed` is None if the seed is a new random number."""
        if seed is None or self.over:
            self.restored(generator)
            return
        self.boundary()
        for name in _SEEDED_BY[generator]:
            if (state := state_hash(name)) is not None:
                before = self._seeded.get(name)
                states = {state} if before is None else before.states | {state}
                self._seeded[name] = _Seeded(seed if isinstance(seed, int) else None, at, states, state)

    def restored(self, generator: str) -> None:
        """The program has set a state that it had kept. Activation checkpointing does so in the backward pass."""
        if self._seeded and not in_backward():
            self.boundary()
            for name in _SEEDED_BY[generator]:
                self._seeded.pop(name, None)

    def boundary(self) -> None:
        """The context is about to change: find out which generators were drawn from in it."""
        if not self._seeded or in_backward():
            return
        context = torch.is_grad_enabled(), self.model.training
        for name, seeded in self._seeded.items():
            if not seeded.complete and (state := state_hash(name)) is not None and state != seeded.last:
                seeded.drew_in.add(context)
                seeded.last = state
                self.drawn = True

    def before_backward(self) -> None:
        """What is drawn from here on is not part of this loss."""
        self.boundary()
        for seeded in self._seeded.values():
            seeded.complete = True

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer is about to change the parameters."""
        if not self.over:
            self._follow(optimizer)
            self.steps += 1

    def _follow(self, optimizer: Optimizer) -> None:
        for name in dict.fromkeys(name for names in _SEEDED_BY.values() for name in names):
            seeded = self._seeded.get(name)
            key = id(optimizer), name
            if seeded is None or not self._trains_with(seeded) or isinstance(optimizer, _FOR_CLOSURES):
                self._streaks.pop(key, None)
                continue
            state = next(iter(seeded.states))
            streak = self._streaks.get(key)
            if streak is None or (streak.optimizer(), streak.state, streak.at) != (optimizer, state, seeded.at):
                streak = self._streaks[key] = _Streak(weakref.ref(optimizer), state, seeded.at, seeded.seed)
            streak.steps += 1
            known = self._found.get((name, seeded.at))
            if known is None or known.steps < streak.steps:
                self._found[name, seeded.at] = SeededEachStep(name, streak.steps, seeded.seed, seeded.at)

    def _trains_with(self, seeded: _Seeded) -> bool:
        """Whether it had one seed, and numbers were drawn as in training: not to evaluate, and not in `no_grad`."""
        return seeded.complete and len(seeded.states) == 1 and (True, self.model.training) in seeded.drew_in

    def end_step(self) -> None:
        """The next step begins."""
        self._seeded.clear()


def grad_modes() -> Iterator[tuple[type, str]]:
    """The methods that change whether gradients are recorded."""
    for owner in (torch.no_grad, torch.enable_grad, torch.set_grad_enabled, torch.inference_mode):
        yield from ((owner, "__enter__"), (owner, "__exit__"))
    yield torch.set_grad_enabled, "__init__"

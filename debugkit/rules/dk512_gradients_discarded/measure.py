"""Follow the gradients of a few parameters from one step of any optimizer to the next."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Self

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from debugkit._torch_private import divisor_of, in_backward, version_of
from debugkit.finding import SourceLine
from debugkit.frames import is_users, user_line
from debugkit.held_parameters import held_parameters, smallest_trained
from debugkit.probe import Probe
from debugkit.recorders.guard import guarded
from debugkit.recorders.optimizer_steps import OptimizerSteps
from debugkit.recorders.patches import Patches
from debugkit.rules.dk512_gradients_discarded import DISCARDED, Period, Periods, Used
from debugkit.setup import TrainingSetup

_SAMPLED = 3
_FEWEST = 8
"""Elements: the gradients of fewer may have the same direction by chance."""
_LARGEST = 4096
_MOST = 256
"""Gradients of one parameter that are compared with zero in one period."""
_REMEMBERED = 64
_PATIENCE = 32
"""Steps with gradients of which none was discarded, after which nothing is observed any more."""
_PARALLEL = 0.999
_MICRO_BATCHES = 2
"""Of which one discarded is enough, if each loss is divided by their number."""
_FRAMES = 8


@dataclass(eq=False)
class _Watched:
    """A parameter, and its gradients since the last step."""

    parameter: weakref.ref[Tensor]
    arrived: int = 0
    resets: list[tuple[int, Tensor | None]] = field(default_factory=list)
    """Where the sum of those that had arrived was gone: how many. Where it was written in place: whether it is zero."""
    left: tuple[weakref.ref[Tensor], int] | None = None
    """The gradient after the last backward pass, and its counter of changes."""
    copy: Tensor | None = None
    """Its values, if an earlier one was reset."""
    start: Tensor | None = None
    """The parameter at the second backward pass."""
    first: Tensor | None = None
    """The parameter at the first, if its loss is divided by 2."""

    @property
    def is_doubtful(self) -> bool:
        """Whether several may have been discarded, in more than one reset."""
        return len(self.resets) > 1 and self.resets[-1][0] >= DISCARDED

    def forget(self) -> None:
        """A step has ended the period."""
        self.arrived, self.resets = 0, []
        self.left = self.copy = self.start = self.first = None

    def resets_before(self, held: Tensor | None) -> list[tuple[int, Tensor | None]]:
        """The reset, if any, after which the gradient is `held`: at the arrival of another one, or at the step."""
        if held is None:
            return [(self.arrived, None)]
        if len(self.resets) < _MOST and not self._is_left(held) and not held.is_sparse:
            return [(self.arrived, (held == 0).all())]
        return []

    def keeps(self) -> None:
        """A backward pass has ended."""
        parameter = self.parameter()
        gradient = None if parameter is None else parameter.grad
        if gradient is None or gradient.is_sparse:
            self.left = self.copy = None
            return
        self.left = weakref.ref(gradient), version_of(gradient)
        self.copy = gradient.detach().clone() if self.resets else None

    def count(self) -> int:
        """The number that was discarded, if in more than one reset; waits for the device."""
        found = self._found()
        return found[-1] if len(found) > 1 else 0

    def lost_the_first(self) -> bool:
        """Whether two gradients arrived for the same weights, and the first was reset before the second.

        It waits for the device if there was a reset."""
        if self.arrived != _MICRO_BATCHES or self._found() != [1] or self.first is None or self.start is None:
            return False
        return torch.equal(self.first, self.start)

    def value(self) -> Tensor | None:
        """A copy of the parameter."""
        parameter = self.parameter()
        return None if parameter is None else parameter.detach().clone()

    def moved(self) -> bool:
        """Whether the parameter has changed since the second backward pass; waits for the device."""
        parameter = self.parameter()
        return parameter is None or (self.start is not None and not torch.equal(self.start, parameter.detach()))

    def used(self, optimizer: Optimizer) -> Used:
        """What the step is about to use; waits for the device."""
        parameter = self.parameter()
        gradient = None if parameter is None else parameter.grad
        reads_grad = type(optimizer).__module__.startswith("torch.optim")  # others may keep gradients of their own
        if gradient is None or not bool((gradient != 0).any()):
            return "none" if reads_grad else "other"
        return "last" if self.copy is not None and _is_scaled(gradient, self.copy) else "other"

    def _found(self) -> list[int]:
        """How many had arrived at each reset."""
        return [arrived for arrived, zero in self.resets if zero is None or bool(zero)]

    def _is_left(self, held: Tensor) -> bool:
        return self.left is not None and self.left[0]() is held and self.left[1] == version_of(held)


class PeriodsProbe(Probe[Periods]):
    """Observes the steps of all optimizers, also of those made while the loop runs."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._watched: dict[int, _Watched] = {}
        self._known: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._patches = Patches()
        self._hooks = OptimizerSteps()
        self._handles: list[RemovableHandle] = []
        self._steps = 0
        self._found: list[Period] = []
        self._rest: Period | None = None
        # of the period that has begun
        self._backwards = 0
        self._places: set[tuple[Any, ...]] = set()
        self._divided = 0
        self._counters: list[int] | None = None

    def __enter__(self) -> Self:
        self._patches = Patches()
        self._patches.around(torch.autograd, "backward", before=self._before_backward, after=self._after_backward)
        self._patches.around(torch.amp.GradScaler, "step", after=self._forget)
        self._hooks = OptimizerSteps(before=guarded(self._before_step))
        self._hooks.attach()
        for optimizer in self.setup.optimizers:
            self._watch(optimizer)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.remove()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._patches.__exit__(None, None, None)
        self._watched.clear()

    def loop_ended(self) -> None:
        if candidates := [one for one in self._watched.values() if one.is_doubtful and one.count() >= DISCARDED]:
            self._rest = self._period("", candidates, "none", None)
        self._forget()

    @property
    def observation(self) -> Periods:
        return Periods(self._steps, tuple(self._found), self._rest)

    @property
    def _has_seen_enough(self) -> bool:
        return self._steps >= 2 * len(self._found) + _PATIENCE or len(self._found) == _REMEMBERED

    def _watch(self, optimizer: Optimizer) -> None:
        if optimizer in self._known:
            return
        self._known.add(optimizer)
        for parameter in smallest_trained(optimizer, _SAMPLED, fewest=_FEWEST, most=_LARGEST):
            known = self._watched.get(id(parameter))
            if known is None or known.parameter() is not parameter:
                watched = self._watched[id(parameter)] = _Watched(weakref.ref(parameter))
                self._follow(parameter, watched)

    def _follow(self, parameter: Tensor, watched: _Watched) -> None:
        arrives, is_added = map(guarded, _hooks_of(watched))
        self._handles.append(parameter.register_hook(arrives))  # type: ignore[no-untyped-call]
        self._handles.append(parameter.register_post_accumulate_grad_hook(is_added))  # type: ignore[no-untyped-call]

    def _before_backward(self, tensors: Any = None, *_: Any, **__: Any) -> None:
        if in_backward():
            return
        if self._has_seen_enough:  # not at the step: PyTorch iterates over its hooks there
            self.__exit__(None, None, None)
            return
        self._backwards += 1
        if len(self._places) < 2:
            self._places.add(_place())
        self._divided += _is_divided(tensors)
        if self._backwards == self._divided == 1:
            for watched in self._watched.values():
                watched.first = watched.value()
        if self._backwards == 2:
            self._counters = self._versions()
            for watched in self._watched.values():
                watched.start = watched.value()

    def _after_backward(self, *_: Any, **__: Any) -> None:
        if not in_backward():
            for watched in self._watched.values():
                if watched.arrived:
                    watched.keeps()

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._watch(optimizer)
        own = {id(p) for p in held_parameters(optimizer)}
        arrived = [one for key, one in self._watched.items() if key in own and one.arrived]
        if arrived and not any(map(callable, (*args[1:], kwargs.get("closure")))):
            self._steps += 1
            self._end(optimizer, arrived)
        self._forget()

    def _end(self, optimizer: Optimizer, arrived: list[_Watched]) -> None:
        for one in arrived:
            parameter = one.parameter()
            if parameter is not None:
                one.resets += one.resets_before(parameter.grad)
        candidates = [one for one in arrived if one.is_doubtful and one.count() >= DISCARDED]
        if self._backwards == self._divided == _MICRO_BATCHES and all(one.lost_the_first() for one in arrived):
            candidates = arrived
        if candidates:
            uses = {one.used(optimizer) for one in candidates}
            used = uses.pop() if len(uses) == 1 else "other"
            self._found.append(self._period(type(optimizer).__name__, candidates, used, user_line()))

    def _period(self, optimizer: str, candidates: list[_Watched], used: Used, at: SourceLine | None) -> Period:
        return Period(
            step=self._steps,
            optimizer=optimizer,
            backwards=self._backwards,
            discarded=max(1 if one.lost_the_first() else one.count() for one in candidates),
            used=used,
            one_place=len(self._places) == 1,
            divided=self._backwards == self._divided == _MICRO_BATCHES,
            unchanged=self._counters == self._versions() and not any(one.moved() for one in candidates),
            at=at,
        )

    def _versions(self) -> list[int]:
        """The counters of changes of all parameters of the model."""
        return [version_of(parameter) for parameter in self.setup.model.parameters()]

    def _forget(self, *_: Any, **__: Any) -> None:
        """A new period begins."""
        self._backwards, self._divided, self._places, self._counters = 0, 0, set(), None
        for watched in self._watched.values():
            watched.forget()


# Functions, not bound methods: copy.deepcopy of a parameter keeps a function as it is.


def _hooks_of(watched: _Watched) -> tuple[Callable[[Tensor], None], Callable[[Tensor], None]]:
    """What is called when a gradient arrives, and when it is added to `.grad`: torch.autograd.grad() adds nothing."""
    resets: list[tuple[int, Tensor | None]] = []

    def arrives(_gradient: Tensor) -> None:
        parameter = watched.parameter()
        resets[:] = watched.resets_before(parameter.grad) if parameter is not None and watched.arrived else ()

    def is_added(_parameter: Tensor) -> None:
        watched.resets += resets
        watched.arrived += 1
        resets.clear()

    return arrives, is_added


def _place() -> tuple[Any, ...]:
    """The lines of the program that are running, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    found: list[Any] = []
    while frame is not None and len(found) < _FRAMES:
        if is_users(frame.f_code.co_filename):
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def _is_divided(tensors: Any) -> bool:
    """Whether `backward()` starts from a loss divided by the number of micro-batches, which may have been scaled."""
    node = getattr(tensors, "grad_fn", None)
    if node is None:
        return False
    if node.name().startswith("Mul"):
        node = node.next_functions[0][0]
    return node is not None and divisor_of(node) == _MICRO_BATCHES


def _is_scaled(gradient: Tensor, left: Tensor) -> bool:
    """Whether a gradient is the one that was left, but for a factor or for bounds on its elements."""
    if gradient.is_sparse or gradient.shape != left.shape:
        return False
    one, two = gradient.detach().double().flatten(), left.double().flatten()
    bound = one.abs().max()
    if torch.allclose(one, two.clamp(-bound, bound), rtol=1e-3):
        return True
    return bool(one @ two >= _PARALLEL * one.norm() * two.norm())

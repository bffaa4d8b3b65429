"""The probes of `debugkit.probe`, attached to a live loop; a probe that raises is removed, and the loop continues.

That holds for its hooks and patches, too, which run inside calls of the program.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from debugkit._torch_private import is_compiled, mode_stack, set_mode_stack, without_torch_function
from debugkit.finding import NotExamined, Unexamined
from debugkit.frames import one_line
from debugkit.gradient_norms import GradientNorms
from debugkit.observer import Observer
from debugkit.probe import Probe
from debugkit.recorders.function_calls import is_shared
from debugkit.recorders.guard import Guard
from debugkit.setup import TrainingSetup

_STAGES = 2
"""Optimizers that are new after the first steps and whose own first steps are examined; a loop may make one in each
epoch."""


class ProbeRunner(Observer):
    """Forwards the events of a step to probes and collects their observations.

    `missing` holds, for each observation that could not be made, the reason. A probe with `watch_every` is detached
    between its sampled steps, and one with `watch_every` or `watch_steps` in steps whose values are not recorded. One
    with `watch_steps` is attached again in the first steps of an optimizer that begins later.
    Function modes of probes are off while an optimizer steps: it calls hundreds of functions, and none of them is part
    of a forward pass.
    """

    def __init__(self, probes: Mapping[type, Callable[[], type[Probe[Any]]]], setup: TrainingSetup) -> None:
        self.missing: dict[type, Unexamined] = {}
        self._attached: list[_Held] = []
        self._detached: list[_Held] = []
        self._finished: list[_Held] = []  # their `watch_steps` are over
        self._off: tuple[list[Any], list[Any]] | None = None  # PyTorch's stack without the probes' modes, and with them
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._stages = 0
        self._begins_stage = False
        self._looked = 0  # steps whose values were recorded
        self._in_turn = max(1, len(setup.optimizers))  # if each steps once in so many steps, each has its first steps
        self._may_detach = not is_compiled(setup.model)  # adding and removing hooks recompiles a compiled model
        for kind, load in probes.items():
            guard = Guard()
            self._guarded(kind, guard, self._load_and_attach, load, guard, setup)

    def _load_and_attach(self, load: Callable[[], type[Probe[Any]]], guard: Guard, setup: TrainingSetup) -> None:
        cls = load()
        if cls.watch_steps is not None and is_compiled(setup.model):
            raise NotExamined("The model is compiled, so its operations cannot be recorded: use debugkit.check().")
        self._enter(_Held(cls(setup), guard, cls.watch_steps))

    def _enter(self, held: _Held) -> None:
        before = mode_stack()
        with without_torch_function(), held.guard:
            held.probe.__enter__()
        added = [mode for mode in mode_stack() if not _among(mode, before)]
        held.modes = [mode for mode in added if not is_shared(mode)]
        self._attached.append(held)

    def close(self) -> None:
        """Detach every probe."""
        for held in list(self._attached):
            self._drop(held)
        self._detached.clear()
        self._finished.clear()

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        if losses:
            self._each("before_backward", losses)

    def after_backward(self) -> None:
        self._each("after_backward")

    def gradient_norms_read(self, optimizer: Optimizer, norms: GradientNorms, /) -> None:
        self._each("gradient_norms_read", optimizer, norms)

    def before_optimizer_step(self, optimizer: Optimizer, /) -> None:
        if optimizer not in self._stepped:
            self._stepped.add(optimizer)
            self._begins_stage = bool(self._finished)
        self._each("before_optimizer_step", optimizer)
        stack = mode_stack()
        ours = [mode for held in self._attached for mode in held.modes]
        others = [mode for mode in stack if not is_shared(mode) and not _among(mode, ours)]
        if len(others) < len(stack):
            set_mode_stack(others)
            self._off = others, stack

    def after_optimizer_step(self, optimizer: Optimizer, /) -> None:
        if self._off is not None:
            (others, stack), self._off = self._off, None
            if len(others) == len(mode_stack()):
                set_mode_stack(stack)
        self._each("after_optimizer_step", optimizer)

    def end_step(
        self, step: int, seen: dict[type, object], *, looked: bool, will_look: bool, judged: bool = True
    ) -> None:
        """End a step: put the observation of each probe into `seen`, and detach probes whose `watch_steps` are over.

        `looked` is whether the values of this step were recorded; otherwise no observation is read. `will_look` is the
        same for the next step. `judged` is whether the whole run is judged now.
        """
        with without_torch_function():
            for held in self._attached:  # a new list replaces it when a probe is dropped
                if held.guard.error is not None:
                    self.missing[held.kind] = _raised(held.guard.error)
                    self._drop(held)
                elif looked:
                    self._try(held, self._end, held, step, seen, judged)
                elif held.ends_steps:
                    self._guarded(held.kind, held.guard, held.probe.end_step, step)
                if held.steps_left is not None:
                    self._count_down(held)
        self._looked += looked
        if self._begins_stage:
            self._begin_stage()
        if self._may_detach and (looked or will_look):
            self._attach_and_detach(will_look)

    def _count_down(self, held: _Held) -> None:
        held.steps_left = (held.steps_left or 0) - 1
        if held.steps_left <= 0 and held in self._attached:
            self._drop(held)
            self._finished.append(held)

    def _begin_stage(self) -> None:
        """Examine the first steps again for an optimizer that is new, as of a student after its teacher."""
        self._begins_stage = False
        if self._stages == _STAGES:
            return
        self._stages += 1
        for held in self._finished:
            held.steps_left = held.probe.watch_steps
        self._detached += self._finished
        self._finished.clear()

    def _attach_and_detach(self, will_look: bool) -> None:
        for held in [held for held in self._attached if held.is_sampled and not self._is_due(held.probe, will_look)]:
            if self._try(held, self._drop, held):
                self._detached.append(held)
        for held in [held for held in self._detached if self._is_due(held.probe, will_look)]:
            self._detached.remove(held)
            self._try(held, self._enter, held)

    def _is_due(self, probe: Probe[object], will_look: bool) -> bool:
        """Whether a probe is attached in the next step."""
        first = probe.watch_first * self._in_turn
        return will_look and (self._looked < first or self._looked % probe.watch_every == 0)

    def recall(self, seen: dict[type, object], *, attached: bool = False) -> None:
        """Add the last observations of detached probes to `seen`, for rules that judge the whole run.

        With `attached`, also those of the others: no step has just ended that would have added them.
        """
        for held in self._detached:
            if held.last is not None:  # the model may have changed since, without the probe
                seen.setdefault(held.kind, held.last)
        for held in [*self._detached, *(self._attached if attached else ())]:
            if held.kind not in seen:
                self._try(held, self._observe, held, seen)

    def _observe(self, held: _Held, seen: dict[type, object]) -> None:
        if held.guard.error is not None:
            raise held.guard.error
        with without_torch_function():
            seen[held.kind] = held.probe.observation

    def loop_ended(self, seen: dict[type, object]) -> None:
        """End the loop: add to `seen` the observations of probes that override `loop_ended`."""
        for held in list(self._attached):
            if type(held.probe).loop_ended is not Probe.loop_ended:
                self._try(held, self._end_loop, held, seen)

    def loop_failed(self) -> dict[type, object]:
        """End a loop that raised: the observations of probes that override `loop_failed`."""
        seen: dict[type, object] = {}
        for held in list(self._attached):
            if type(held.probe).loop_failed is not Probe.loop_failed:
                self._try(held, self._fail_loop, held, seen)
        return seen

    def _fail_loop(self, held: _Held, seen: dict[type, object]) -> None:
        held.probe.loop_failed()
        self._observe(held, seen)

    def _end_loop(self, held: _Held, seen: dict[type, object]) -> None:
        held.probe.loop_ended()
        self._observe(held, seen)

    def _end(self, held: _Held, step: int, seen: dict[type, object], judged: bool) -> None:
        held.probe.end_step(step)
        held.last = None
        if held.probe.covers_run and not judged:
            return
        try:
            seen[held.kind] = held.last = held.probe.observation
            self.missing.pop(held.kind, None)
        except NotExamined as limit:
            self.missing[held.kind] = Unexamined("", str(limit))

    def _each(self, event: str, *given: Any) -> None:
        """Notify the probes that override this event. What they compute is not observed by function modes."""
        with without_torch_function():
            for held in list(self._attached):
                if getattr(type(held.probe), event) is not getattr(Observer, event) and not self._try(
                    held, getattr(held.probe, event), *given
                ):
                    self._drop(held)

    def _drop(self, held: _Held) -> None:
        """Detach a probe. Leaving a mode removes the top of PyTorch's stack, which may be the mode of another probe."""
        self._attached = [other for other in self._attached if other is not held]
        stack = mode_stack()
        try:
            held.probe.__exit__(None, None, None)
        finally:
            set_mode_stack([mode for mode in stack if not _among(mode, held.modes) and not _is_unused(mode)])
            held.modes = []

    def _try(self, held: _Held, act: Callable[..., object], *given: Any) -> bool:
        return self._guarded(held.kind, held.guard, act, *given)

    def _guarded(self, kind: type, guard: Guard, act: Callable[..., object], *given: Any) -> bool:
        """Whether it raised nothing but NotExamined. An exception is the reason why the observation is missing."""
        try:
            guard.run(act, *given)
        except NotExamined as limit:
            self.missing[kind] = Unexamined("", str(limit))
        except Exception as error:
            self.missing[kind] = _raised(error)
            return False
        return True


@dataclass(eq=False)
class _Held:
    """A probe, and what belongs to it."""

    probe: Probe[object]
    guard: Guard
    """Of its hooks and patches."""
    steps_left: int | None
    """Before its `watch_steps` are over."""
    modes: list[Any] = field(default_factory=list)
    """The function modes that it put on PyTorch's stack for itself, while it is attached."""
    last: object = None
    """The observation of the last step in which it was attached, if there is one."""
    kind: type = field(init=False)
    """The type of its observation."""
    ends_steps: bool = field(init=False)
    """Whether it overrides `end_step`."""

    def __post_init__(self) -> None:
        self.kind = self.probe.yields
        self.ends_steps = type(self.probe).end_step is not Probe.end_step

    @property
    def is_sampled(self) -> bool:
        """Whether it is detached between the steps that it observes."""
        return self.probe.watch_every > 1 or self.probe.watch_steps is not None


def _raised(error: Exception) -> Unexamined:
    return Unexamined("", f"Observing it raised {one_line(error)}.", error)


def _is_unused(mode: Any) -> bool:
    return is_shared(mode) and not mode.observers


def _among(mode: Any, modes: list[Any]) -> bool:
    return any(mode is other for other in modes)

"""Records what a loop does with optimizers, scalers and schedulers, under whatever names it has imported them."""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from debugkit._torch_private import (
    CLIPS_EVERY_NORM,
    has_stepped,
    in_backward,
    is_initial_step,
    without_torch_function,
)
from debugkit.finding import SourceLine
from debugkit.frames import own_line
from debugkit.held_parameters import held_parameters
from debugkit.interventions.program_lines import files_on_the_stack, line_that_built
from debugkit.loop.clipping import coverage
from debugkit.loop.gradient_resets import GradientResets
from debugkit.loop.group_rate_history import GroupRateHistory
from debugkit.loop.learning_rates import initial_rate, rates_of, schedule_of
from debugkit.loop.optimizer_events import EventKind, LoopEvent, OptimizerEvents
from debugkit.loop.plateau_history import PlateauHistory
from debugkit.loop.scaler_use import ScalerUse
from debugkit.loop.step_counts import ForeignSteps, StepCounts
from debugkit.observer import Observer
from debugkit.recorders.optimizer_steps import OptimizerSteps
from debugkit.recorders.patches import Patches
from debugkit.recorders.timeline import Timeline

_REMEMBERED = 512
_SEARCHES = 2
"""Searches after the first one: the loop may be in another file than the call of `watch()`."""


class LoopEvents:
    """Records the events of the given optimizers, or of all if none are given. `.observation` is the run so far."""

    def __init__(
        self,
        timeline: Timeline,
        observer: Observer,
        optimizers: Iterable[Optimizer] | None = None,
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.observer = observer
        self.resets = GradientResets(timeline, is_paused)
        self.plateaus = PlateauHistory()
        self.group_rates = GroupRateHistory()
        self._schedules: weakref.WeakKeyDictionary[Any, SourceLine | None] = weakref.WeakKeyDictionary()
        self._is_paused = is_paused
        self._given = None if optimizers is None else tuple(optimizers)
        self._known: list[weakref.ref[Optimizer]] = []
        self._labels: list[str] = []
        self._built: list[SourceLine | None] = []
        self._searches = 0
        self.steps: list[int] = []
        self._turns: set[int] = set()  # optimizers that have stepped in the current step of the loop
        self._events: deque[LoopEvent] = deque(maxlen=_REMEMBERED)
        self._order = self.backwards = self._scaler_steps = self._skipped = self._steps_before = 0
        self._foreign = ForeignSteps(self._given or ())
        self._last_scaler: weakref.ref[Any] | None = None
        self._in_scheduler = 0
        self._stepping: set[int] = set()  # optimizers whose `step()` is running
        self._resets_inside: list[tuple[int, SourceLine | None]] = []
        self.closure_calls: int | None = None
        """How often the running `step()` has called its closure; None if it has none."""
        self._patches = Patches()
        self._hooks = OptimizerSteps(before=self._before_step, after=self._after_step)

    @property
    def observation(self) -> OptimizerEvents:
        """The record so far."""
        return OptimizerEvents(
            labels=tuple(self._labels),
            steps=tuple(self.steps),
            backwards=self.backwards,
            skipped=self._skipped,
            events=tuple(self._events),
            uses=self.resets.uses(),
            moved=tuple(self.resets.moved(number) for number in range(len(self._labels))),
            initial_rates=tuple(initial_rate(known()) for known in self._known),
            foreign_steps=self._foreign.count,
            built=self._found_lines(),
            fresh=tuple(self.resets.fresh(number) for number in range(len(self._labels))),
            plateaus=self.plateaus.observation,
            group_rates=self.group_rates.observation,
        )

    def _found_lines(self) -> tuple[SourceLine | None, ...]:
        if self._searches < _SEARCHES:
            self._searches += 1
            self._find_lines()
        return tuple(self._built)

    def _find_lines(self) -> None:
        """Search the lines that built the optimizers, in the files and by the names of the code that is running."""
        for number, known in enumerate(self._known):
            optimizer = known()
            if self._built[number] is None and optimizer is not None:
                self._built[number] = line_that_built(optimizer, files_on_the_stack())

    @property
    def counts(self) -> StepCounts:
        """The number of steps so far."""
        return StepCounts(sum(self.steps), self._skipped, self._foreign.count)

    @property
    def scaler(self) -> ScalerUse:
        """The use of GradScalers in the run."""
        scaler = self._last_scaler() if self._last_scaler is not None else None
        return ScalerUse(self._scaler_steps, self._skipped, None if scaler is None else float(scaler.get_scale()))

    def __enter__(self) -> Self:
        self._patches.__enter__()
        for optimizer in self._given or ():
            self._number(optimizer)
        around = self._patches.around
        around(torch.autograd, "backward", before=self._before_backward, after=self._after_backward)
        for owner in dict.fromkeys([Optimizer, *(type(o) for o in self._given or ())]):
            if "zero_grad" in vars(owner):
                around(owner, "zero_grad", before=self._zero_grad)
        around(Optimizer, "__init__", after=self._optimizer_built)
        self._patch_clipping()
        self._patch_scaler()
        self._patches.around_overrides(LRScheduler, "step", before=self._before_schedule, after=self._after_schedule)
        self._hooks.attach()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._hooks.remove()
        self.resets.close()
        self._patches.__exit__(kind, error, at)

    @property
    def optimizers(self) -> list[Optimizer]:
        """The watched optimizers that still exist."""
        return [optimizer for known in self._known if (optimizer := known()) is not None]

    def number_of(self, optimizer: Optimizer) -> int | None:
        """The number of an optimizer in the record; None if it is not watched."""
        for number, known in enumerate(self._known):
            if known() is optimizer:
                return number
        return None

    def note_turn(self, optimizer: Optimizer) -> bool:
        """Note that an optimizer has stepped. Returns whether a step of the loop begins with it.

        Optimizers that take turns share one step of the loop. The next begins when one of them has its turn again.
        """
        number = self.number_of(optimizer)
        begins = not self._turns or number in self._turns
        if begins:
            self._turns.clear()
        if number is not None:
            self._turns.add(number)
        return begins

    def _number(self, optimizer: Optimizer) -> int | None:
        number = self.number_of(optimizer)
        if number is None and (self._given is None or optimizer in self._given):
            number = len(self._known)
            self._known.append(weakref.ref(optimizer))
            self._labels.append(type(optimizer).__name__)
            self._built.append(None)
            self._find_lines()
            self.steps.append(0)
            with without_torch_function():  # its copies are no operations of the program
                self.resets.sample(number, optimizer)
        return number

    def _note(self, kind: EventKind, optimizers: tuple[int, ...], at: SourceLine | None = None, **more: Any) -> None:
        step = self.steps[optimizers[0]] if optimizers else max(self.steps, default=0)
        self._events.append(LoopEvent(kind, self._order, optimizers, step, at or own_line(), **more))
        self._order += 1

    def _before_backward(self, tensors: Any, *_: Any, **__: Any) -> None:
        if self._is_paused() or in_backward():
            return  # a backward of the tool itself, or of activation checkpointing inside another backward
        self.backwards += 1
        self._note_resets()  # of a closure, before it computes gradients
        self._note("backward", ())
        self.observer.before_backward([tensors] if isinstance(tensors, Tensor) else list(tensors))

    def _after_backward(self, *_: Any, **__: Any) -> None:
        if not self._is_paused() and not in_backward():
            self.observer.after_backward()

    def _optimizer_built(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        self.group_rates.built(optimizer, own_line())

    def _zero_grad(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        number = self._number(optimizer)
        if number in self._stepping:
            self._resets_inside.append((number, own_line()))
        elif number is not None:
            self._note("zero_grad", (number,))

    def _note_resets(self) -> None:
        """Note the resets inside of a `step()`: an optimizer that uses the gradients itself may reset them last."""
        resets, self._resets_inside = self._resets_inside, []
        for number, at in resets:
            self._note("zero_grad", (number,), at)

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """With a closure, return new arguments for step(): the same closure, wrapped."""
        number = self._number(optimizer)
        if number is None or self._is_paused():
            return None
        self._stepping.add(number)
        self.observer.optimizer_step_begins(optimizer)
        self.closure_calls = 0 if any(map(callable, (*args[1:], kwargs.get("closure")))) else None
        if self.closure_calls is None:
            self.observer.before_optimizer_step(optimizer)
            return None

        def observed(given: Any) -> Any:
            return self._observed_closure(given, optimizer) if callable(given) else given

        given = {**kwargs, "closure": observed(kwargs["closure"])} if "closure" in kwargs else kwargs
        return (*args[:1], *map(observed, args[1:])), given

    def _observed_closure(self, closure: Callable[..., Any], optimizer: Optimizer) -> Callable[..., Any]:
        """The closure with a notification after its first call, before the optimizer changes the parameters."""

        @functools.wraps(closure)
        def observed(*args: Any, **kwargs: Any) -> Any:
            result = closure(*args, **kwargs)
            self.closure_calls = (self.closure_calls or 0) + 1
            if self.closure_calls == 1:
                self.observer.before_optimizer_step(optimizer)
            return result

        return observed

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self._is_paused():
            return
        if (number := self._number(optimizer)) is None:
            self._foreign.stepped(optimizer)
            return
        at = own_line()
        self._in_scheduler = 0  # a scheduler that raised did not decrement it
        self._note("step", (number,), at, **rates_of(optimizer))
        self._stepping.discard(number)
        self._note_resets()
        self.group_rates.stepped(optimizer, number)
        self.resets.stepped(number, at)
        self.steps[number] += 1
        self.observer.after_optimizer_step(optimizer)

    def _patch_clipping(self) -> None:
        module = torch.nn.utils.clip_grad
        if hasattr(module, CLIPS_EVERY_NORM):  # called by every clip_grad_norm_, also if that was imported by name
            self._patches.around(module, CLIPS_EVERY_NORM, before=self._clip)
        else:
            for owner in (module, torch.nn.utils):
                self._patches.around(owner, "clip_grad_norm_", before=self._clip)
        for owner in (module, torch.nn.utils):
            self._patches.around(owner, "clip_grad_value_", before=self._clip)

    def _clip(self, parameters: Iterable[Tensor] | Tensor, limit: Any = None, *_: Any, **named: Any) -> None:
        if not isinstance(parameters, Tensor | list | tuple | dict):
            return  # reading an iterator would exhaust it
        optimizers, covered, clippable = coverage([known() for known in self._known], parameters)
        limit = named.get("max_norm", named.get("clip_value", limit))
        self._note(
            "clip",
            optimizers,
            clipped=covered,
            clippable=clippable,
            passed=1 if isinstance(parameters, Tensor) else len({id(p) for p in parameters}),
            limit=float(limit) if isinstance(limit, int | float) else None,
            scale=self._scale_of_gradients(),
        )

    def _scale_of_gradients(self) -> float | None:
        """The loss scale by which the gradients of the last backward pass are still multiplied; None if they are not.

        Reads it from the device, and only where a clip comes before `unscale_()`.
        """
        scaler = self._last_scaler() if self._last_scaler is not None else None
        if scaler is None or not scaler.is_enabled():
            return None
        for event in reversed(self._events):
            if event.kind in ("scaler_unscale", "step"):
                return None
            if event.kind == "backward":
                return float(scaler.get_scale())
        return None

    def _patch_scaler(self) -> None:
        scaler, around = torch.amp.GradScaler, self._patches.around
        around(scaler, "scale", before=self._before_scale)
        around(scaler, "unscale_", before=self._before_unscale)
        around(scaler, "step", before=self._before_scaler_step, after=self._after_scaler_step)
        around(scaler, "update", before=self._before_update)

    def _before_scale(self, scaler: Any, outputs: Any, *_: Any, **__: Any) -> None:
        if scaler.is_enabled():
            self._last_scaler = weakref.ref(scaler)
            self.observer.before_scale([outputs] if isinstance(outputs, Tensor) else list(outputs))

    def _scaler(self, kind: EventKind, scaler: Any, optimizer: Any) -> bool:
        number = self._number(getattr(optimizer, "optimizer", optimizer))
        if number is None or not scaler.is_enabled():  # a disabled scaler only forwards the step
            return False
        self._note(kind, (number,))
        return True

    def _before_unscale(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        self._scaler("scaler_unscale", scaler, optimizer)

    def _before_update(self, *_: Any, **__: Any) -> None:
        self._note("scaler_update", ())

    def _before_scaler_step(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        self._scaler_steps += self._scaler("scaler_step", scaler, optimizer)
        self._steps_before = sum(self.steps)

    def _after_scaler_step(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        if not scaler.is_enabled() or self._number(getattr(optimizer, "optimizer", optimizer)) is None:
            return
        if sum(self.steps) == self._steps_before:
            self._skipped += 1
            self.observer.step_skipped()

    def _before_schedule(self, *_: Any, **__: Any) -> None:
        self._in_scheduler += 1  # SequentialLR and others step the schedulers inside them

    def _after_schedule(self, scheduler: Any, *given: Any, **named: Any) -> None:
        self._in_scheduler -= 1
        optimizer = getattr(scheduler, "optimizer", None)
        if self._in_scheduler or optimizer is None or is_initial_step(scheduler):
            return  # the constructor of a scheduler makes the first step, not the loop
        if (number := self._number(optimizer)) is not None:
            built = self._line_of_schedule(scheduler)
            self._note("scheduler_step", (number,), built=built, **schedule_of(scheduler), **rates_of(optimizer))
            metric = given[0] if given else named.get("metrics")
            self.plateaus.stepped(scheduler, number, metric, self._events[-1].at)
        elif not has_stepped(optimizer):
            self._note_foreign_schedule(optimizer)

    def _line_of_schedule(self, scheduler: Any) -> SourceLine | None:
        """The line that built a CosineAnnealingLR. It is searched once."""
        if type(scheduler) is not CosineAnnealingLR:
            return None
        if scheduler not in self._schedules:
            self._schedules[scheduler] = line_that_built(scheduler, files_on_the_stack())
        return self._schedules[scheduler]

    def _note_foreign_schedule(self, optimizer: Optimizer) -> None:
        scheduled = {id(p) for p in held_parameters(optimizer)}
        for number, known in enumerate(self._known):
            watched = known()
            if watched is not None and not scheduled.isdisjoint(map(id, held_parameters(watched))):
                self._note("foreign_schedule", (number,), **rates_of(optimizer))

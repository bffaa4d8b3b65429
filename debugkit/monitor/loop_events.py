"""Hears what a loop does with optimizers, scalers and schedulers, whichever names it has imported them under."""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.monitor.gradient_reset import GradientResets
from debugkit.monitor.patches import Patches
from debugkit.monitor.timeline import Timeline
from debugkit.observations.grad_scaler import ScalerUse
from debugkit.observations.optimizer_events import EventKind, LoopEvent, OptimizerEvents

_REMEMBERED = 512


class LoopListener(Protocol):
    """Who is told of the step's stations, besides the record."""

    def before_backward(self, losses: list[Tensor]) -> None: ...
    def after_backward(self) -> None: ...
    def before_scale(self, losses: list[Tensor]) -> None: ...
    def after_scale(self) -> None: ...
    def before_step(self, optimizer: Optimizer, number: int, has_closure: bool) -> None: ...
    def closure_ended(self, optimizer: Optimizer, number: int) -> None: ...
    def after_step(self, optimizer: Optimizer, number: int, has_closure: bool) -> None: ...
    def step_skipped(self) -> None: ...


class LoopEvents:
    """Records the events of the given optimizers, or of all when none are given. `.observation` is the run so far."""

    def __init__(
        self,
        timeline: Timeline,
        listener: LoopListener,
        optimizers: Iterable[Optimizer] | None = None,
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.listener = listener
        self.resets = GradientResets(timeline, is_paused)
        self._is_paused = is_paused
        self._given = None if optimizers is None else tuple(optimizers)
        self._known: list[weakref.ref[Optimizer]] = []
        self._labels: list[str] = []
        self.steps: list[int] = []
        self._events: deque[LoopEvent] = deque(maxlen=_REMEMBERED)
        self._order = self.backwards = self._asked = self._skipped = self._steps_before = 0
        self._scale: float | None = None
        self._in_scheduler = 0
        self._patches = Patches()
        self._handles: list[RemovableHandle] = []

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
            initial_rates=tuple(_initial_rate(known()) for known in self._known),
        )

    @property
    def scaler(self) -> ScalerUse:
        """What the GradScalers of the run did."""
        return ScalerUse(self._asked, self._skipped, self._scale)

    def __enter__(self) -> Self:
        self._patches.__enter__()
        for optimizer in self._given or ():
            self._number(optimizer)
        around = self._patches.around
        around(torch.autograd, "backward", before=self._before_backward, after=self._after_backward)
        for owner in dict.fromkeys([Optimizer, *(type(o) for o in self._given or ())]):
            if "zero_grad" in vars(owner):
                around(owner, "zero_grad", before=self._zero_grad)
        self._patch_clipping()
        self._patch_scaler()
        for scheduler in (LRScheduler, *_subclasses(LRScheduler)):
            if "step" in vars(scheduler):
                around(scheduler, "step", before=self._before_schedule, after=self._after_schedule)
        self._handles.append(register_optimizer_step_pre_hook(self._before_step))
        self._handles.append(register_optimizer_step_post_hook(self._after_step))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.resets.close()
        self._patches.__exit__(kind, error, at)

    @property
    def optimizers(self) -> list[Optimizer]:
        """Those that are watched and still exist."""
        return [optimizer for known in self._known if (optimizer := known()) is not None]

    def number_of(self, optimizer: Optimizer) -> int | None:
        """Its number in the record; None for one that is not watched."""
        return next((number for number, known in enumerate(self._known) if known() is optimizer), None)

    def _number(self, optimizer: Optimizer) -> int | None:
        number = self.number_of(optimizer)
        if number is None and (self._given is None or any(optimizer is given for given in self._given)):
            number = len(self._known)
            self._known.append(weakref.ref(optimizer))
            self._labels.append(type(optimizer).__name__)
            self.steps.append(0)
            self.resets.look_at(number, optimizer)
        return number

    def _note(self, kind: EventKind, optimizers: tuple[int, ...], at: SourceLine | None = None, **more: Any) -> None:
        step = self.steps[optimizers[0]] if optimizers else max(self.steps, default=0)
        self._events.append(LoopEvent(kind, self._order, optimizers, step, at or user_line(), **more))
        self._order += 1

    def _before_backward(self, tensors: Any, *_: Any, **__: Any) -> None:
        if self._is_paused() or torch._C._current_graph_task_id() != -1:
            return  # ours, or activation checkpointing's own inside a backward
        self.backwards += 1
        self._note("backward", ())
        self.listener.before_backward([tensors] if isinstance(tensors, Tensor) else list(tensors))

    def _after_backward(self, *_: Any, **__: Any) -> None:
        if not self._is_paused() and torch._C._current_graph_task_id() == -1:
            self.listener.after_backward()

    def _zero_grad(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        if (number := self._number(optimizer)) is not None:
            self._note("zero_grad", (number,))

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """With a closure, what step() is given instead: the same closure, which also tells when it has ended."""
        if (number := self._number(optimizer)) is None or self._is_paused():
            return None
        has_closure = _closure(args, kwargs)
        self.listener.before_step(optimizer, number, has_closure)

        def told(given: Any) -> Any:
            return self._telling(given, optimizer, number) if callable(given) else given

        if not has_closure:
            return None
        given = {**kwargs, "closure": told(kwargs["closure"])} if "closure" in kwargs else kwargs
        return (*args[:1], *map(told, args[1:])), given

    def _telling(self, closure: Callable[..., Any], optimizer: Optimizer, number: int) -> Callable[..., Any]:
        @functools.wraps(closure)
        def telling(*args: Any, **kwargs: Any) -> Any:
            result = closure(*args, **kwargs)
            self.listener.closure_ended(optimizer, number)
            return result

        return telling

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if (number := self._number(optimizer)) is None or self._is_paused():
            return
        at = user_line()
        self._in_scheduler = 0  # one that raised did not count down
        self._note("step", (number,), at, learning_rate=_learning_rate(optimizer))
        self.resets.stepped(number, at)
        self.steps[number] += 1
        self.listener.after_step(optimizer, number, _closure(args, kwargs))

    def _patch_clipping(self) -> None:
        module = torch.nn.utils.clip_grad
        if hasattr(module, "_clip_grads_with_norm_"):  # what every clip_grad_norm_ calls, also one imported by name
            self._patches.around(module, "_clip_grads_with_norm_", before=self._clip)
        else:
            for owner in (module, torch.nn.utils):
                self._patches.around(owner, "clip_grad_norm_", before=self._clip)
        for owner in (module, torch.nn.utils):
            self._patches.around(owner, "clip_grad_value_", before=self._clip)

    def _clip(self, parameters: Iterable[Tensor] | Tensor, limit: Any = None, *_: Any, **named: Any) -> None:
        if not isinstance(parameters, Tensor | list | tuple | dict):
            return  # an iterator: looking would use it up
        clipped = {id(p) for p in ([parameters] if isinstance(parameters, Tensor) else parameters)}
        concerned = []
        for number, known in enumerate(self._known):
            optimizer = known()
            held = {id(p): p.grad is not None for p in _parameters(optimizer)} if optimizer is not None else {}
            if not clipped.isdisjoint(held):
                given = {key for key, has_gradient in held.items() if has_gradient}
                concerned.append((len(given & clipped), number, len(given)))
        concerned.sort(reverse=True)
        covered, clippable = (concerned[0][0], concerned[0][2]) if concerned else (0, 0)
        limit = named.get("max_norm", named.get("clip_value", limit))
        self._note(
            "clip",
            tuple(number for _, number, _ in concerned),
            clipped=covered,
            clippable=clippable,
            passed=len(clipped),
            limit=float(limit) if isinstance(limit, int | float) else None,
        )

    def _patch_scaler(self) -> None:
        scaler, around = torch.amp.GradScaler, self._patches.around
        around(scaler, "scale", before=self._before_scale, after=self._after_scale)
        around(scaler, "unscale_", before=self._before_unscale)
        around(scaler, "step", before=self._before_scaler_step, after=self._after_scaler_step)
        around(scaler, "update", before=self._before_update)

    def _before_scale(self, scaler: Any, outputs: Any, *_: Any, **__: Any) -> None:
        if scaler.is_enabled():
            self.listener.before_scale([outputs] if isinstance(outputs, Tensor) else list(outputs))

    def _after_scale(self, scaler: Any, *_: Any, **__: Any) -> None:
        if scaler.is_enabled():
            self.listener.after_scale()

    def _scaler(self, kind: EventKind, scaler: Any, optimizer: Any) -> None:
        number = self._number(getattr(optimizer, "optimizer", optimizer))
        if number is not None and scaler.is_enabled():  # one that is not only passes the step on
            self._note(kind, (number,))

    def _before_unscale(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        self._scaler("scaler_unscale", scaler, optimizer)

    def _before_update(self, *_: Any, **__: Any) -> None:
        self._note("scaler_update", ())

    def _before_scaler_step(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        self._scaler("scaler_step", scaler, optimizer)
        self._steps_before = sum(self.steps)

    def _after_scaler_step(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        if not scaler.is_enabled() or self._number(getattr(optimizer, "optimizer", optimizer)) is None:
            return
        self._asked += 1
        if sum(self.steps) == self._steps_before:
            self._skipped += 1
            self.listener.step_skipped()

    def _before_schedule(self, *_: Any, **__: Any) -> None:
        self._in_scheduler += 1  # SequentialLR and others step the schedulers they hold

    def _after_schedule(self, scheduler: Any, *_: Any, **__: Any) -> None:
        self._in_scheduler -= 1
        optimizer = getattr(scheduler, "optimizer", None)
        if self._in_scheduler or optimizer is None or getattr(scheduler, "_is_initial", False):
            return  # the step that a scheduler's constructor makes is not the loop's
        if (number := self._number(optimizer)) is not None:
            self._note("scheduler_step", (number,), learning_rate=_learning_rate(optimizer))
        elif not getattr(optimizer, "_opt_called", False):  # which a scheduler's optimizer is given when it steps
            self._note_foreign_schedule(optimizer)

    def _note_foreign_schedule(self, optimizer: Optimizer) -> None:
        scheduled = {id(p) for p in _parameters(optimizer)}
        for number, known in enumerate(self._known):
            watched = known()
            if watched is not None and not scheduled.isdisjoint(id(p) for p in _parameters(watched)):
                self._note("foreign_schedule", (number,), learning_rate=_learning_rate(optimizer))


def _parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _learning_rate(optimizer: Optimizer) -> float | None:
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    return float(rate) if isinstance(rate, int | float) else None  # a tensor would have to be waited for


def _initial_rate(optimizer: Optimizer | None) -> float | None:
    rate = optimizer.param_groups[0].get("initial_lr") if optimizer is not None and optimizer.param_groups else None
    return float(rate) if isinstance(rate, int | float) else None


def _closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(callable(value) for value in (*args[1:], kwargs.get("closure")))


def _subclasses(cls: type) -> Iterator[type]:
    subclass: type
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)

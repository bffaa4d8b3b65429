"""Watches a live loop: what happened in it becomes observations, one transfer from the device a step.

Everything the tool does by itself runs while `paused` is true, which every hook respects.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from debugkit.monitor.calls import CallRecorder, ModuleCall
from debugkit.monitor.gradient_norms import GradientReading
from debugkit.monitor.locate import Exempt, forward_origin, gradient_origin
from debugkit.monitor.loop_events import LoopEvents
from debugkit.monitor.loop_operations import LoopOperations
from debugkit.monitor.loss_history import LossHistory
from debugkit.monitor.modes import ModeHistory
from debugkit.monitor.module_hooks import ModuleHooks, Running
from debugkit.monitor.step_stations import StepStations
from debugkit.monitor.timeline import Range, Timeline, has_range
from debugkit.observations.activations import Activations, OutputRange
from debugkit.observations.grad_scaler import ScalerUse
from debugkit.observations.gradients import GradientNorms
from debugkit.observations.losses import Losses
from debugkit.observations.nonfinite import Nonfinite
from debugkit.observations.optimizer_events import OptimizerEvents
from debugkit.observations.training_mode import TrainingModes
from debugkit.probes import FIRST_STEPS, SAMPLED_EVERY

Result = TypeVar("Result")
_Read = tuple[list[Range], dict[str, str], int]
_log = logging.getLogger("debugkit")
_MOST_CALLS = 64  # of one step; beyond them nobody is training, and the batches must not pile up
_MOST_REPLAYS = 3  # of one run: after the first NaN everything is NaN


class Monitor:
    """The hooks of one run. `on_nonfinite` is called before the parameters change, `on_step_end` after.

    `observations` holds what the last step yielded; `on_step_end` also hears whether the step was looked at.
    """

    def __init__(
        self,
        models: Iterable[tuple[str, nn.Module]],
        optimizers: Iterable[Optimizer] | None,
        *,
        every: int = 1,
        on_nonfinite: Callable[[Nonfinite], None] = lambda _: None,
        on_step_end: Callable[[int, bool], None] = lambda _, __: None,
        stations: StepStations | None = None,
    ) -> None:
        self.timeline = Timeline()
        self.paused = False
        self.step = 0
        self.observations: dict[type, object] = {}
        self.recorder = CallRecorder()
        self.events = LoopEvents(self.timeline, self, optimizers, lambda: self.paused)
        self.running = Running()
        self.hooks = [self._hooks_of(path, model) for path, model in models]
        self.loop_operations = LoopOperations(self.timeline)
        self._every = every
        self._on_nonfinite = on_nonfinite
        self._on_step_end = on_step_end
        self.stations = stations or StepStations()
        self._exempt: Exempt = set()
        self._replays = 0
        self._scaled = False
        self._looked = 0  # steps that were looked at
        self._closures = 0  # how often the running optimizer.step() has called its closure
        self.failed = ""  # the first failure of the tool itself, in one sentence
        self._named: dict[int, str] = {}
        self._named_for: set[tuple[int, int]] = set()
        self._modes = ModeHistory()
        self._losses = LossHistory()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as attaching:
            attaching.callback(self.loop_operations.disarm)
            attaching.enter_context(self.events)
            attaching.callback(self._unhook)
            for hooks in self.hooks:
                hooks.__enter__()
            self._stack = attaching.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()
        self.timeline.clear()
        self.recorder.forget()

    def _unhook(self) -> None:
        for hooks in self.hooks:
            hooks.__exit__()

    def add_model(self, path: str, model: nn.Module) -> ModuleHooks:
        """Hook one more model, found while the loop runs; parts of it that were hooked alone are now its own."""
        parts = set(map(id, model.modules()))
        for known in [hooks for hooks in self.hooks if id(hooks.model) in parts]:
            known.__exit__()
            self.hooks.remove(known)
        hooks = self._hooks_of(path, model)
        hooks.active = self.active
        self.hooks.append(hooks.__enter__())
        return hooks

    def _hooks_of(self, path: str, model: nn.Module) -> ModuleHooks:
        return ModuleHooks(model, timeline=self.timeline, listener=self, prefix=path, running=self.running)

    @property
    def active(self) -> bool:
        """Whether this step's values are looked at."""
        return self.step % self._every == 0

    def knows(self, module: nn.Module) -> bool:
        """Whether it is a watched model, or a part of one."""
        return any(hooks.hooks_on(module) for hooks in self.hooks)

    @property
    def roots(self) -> list[tuple[str, nn.Module]]:
        """The watched models with the prefixes of their paths."""
        return [(hooks.prefix, hooks.model) for hooks in self.hooks]

    @property
    def optimizers(self) -> list[Optimizer]:
        """Those that are watched and still exist."""
        return self.events.optimizers

    @property
    def backwards(self) -> int:
        """How many times the loop has called backward()."""
        return self.events.backwards

    @property
    def calls(self) -> list[ModuleCall]:
        """The module calls of the step so far."""
        return self.recorder.calls

    # What the module hooks tell

    def call_started(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        self.loop_operations.disarm()
        if len(self.recorder.calls) >= _MOST_CALLS:
            self._read()
            self.recorder.forget()
        return self.recorder.start(path.rstrip("."), module, args, kwargs)

    def call_ended(self, output: Any) -> None:
        self.recorder.end(output)
        if torch.is_grad_enabled():
            self.loop_operations.arm()
        elif not any(call.grad_enabled for call in self.recorder.calls):
            self._read()  # evaluation: no step will come to do it
            self.recorder.forget()

    # What the loop's events tell

    def before_backward(self, losses: list[Tensor]) -> None:
        self.loop_operations.disarm()
        if not self._scaled:
            self._note_losses(losses)
        self._scaled = False
        if self.active:
            self.stations.before_backward(losses)

    def after_backward(self) -> None:
        if self.active:
            self.stations.after_backward()

    def before_scale(self, losses: list[Tensor]) -> None:
        self.loop_operations.disarm()  # an overflow of the scaled loss is what the scaler is for
        self._note_losses(losses)
        self._scaled = True

    def after_scale(self) -> None:
        """The scaled loss goes straight to backward()."""

    def before_step(self, optimizer: Optimizer, number: int, has_closure: bool) -> None:
        self.loop_operations.disarm()
        self._closures = 0
        if not has_closure:
            self._before_update(optimizer, number)

    def closure_ended(self, optimizer: Optimizer, number: int) -> None:
        """Forward and backward ran inside the step. After the first time, the parameters still are what they were."""
        self._closures += 1
        if self._closures == 1:
            self.loop_operations.disarm()
            self._before_update(optimizer, number)

    def _before_update(self, optimizer: Optimizer, number: int) -> None:
        self._examine(optimizer, number)
        if self.active:
            norms = self.observations.get(GradientNorms)
            if isinstance(norms, GradientNorms):
                self.stations.norms_read(optimizer, norms)
            self.stations.before_step(optimizer)

    def after_step(self, optimizer: Optimizer, number: int, has_closure: bool) -> None:
        if has_closure and self._closures != 1:  # LBFGS runs it several times, and changes the parameters in between
            self._examine(optimizer, number)
        self._modes.note(self.hooks, self.step)
        if self.active:
            self.stations.after_step(optimizer)
        self._end_step(max(self.events.steps))

    def step_skipped(self) -> None:
        if self.active:
            self._read()
        self._end_step(self.step)

    def finish(self) -> None:
        """Read what the last, unfinished step left behind."""
        self._read()

    # From ranges to observations

    def _examine(self, optimizer: Optimizer, number: int) -> None:
        if self.active:
            nothing: _Read = ([], {}, 0)
            self._find_origins(*self._by_ourselves(lambda: self._read_step(optimizer, number), nothing))

    def _read_step(self, optimizer: Optimizer, number: int) -> _Read:
        """What the step computed, and which of its gradients, of how many, are not finite."""
        reading = GradientReading(optimizer, self._names(number))
        ranges, norms = self._take(reading.scalars())
        self.observations[GradientNorms] = GradientNorms(self.step, number, reading.named(norms))
        return ranges, reading.nonfinite(norms), reading.count

    def _read(self) -> None:
        nothing: list[Range] = []
        self._find_origins(self._by_ourselves(lambda: self._take([])[0], nothing), {}, 0)

    def _take(self, also: list[Tensor]) -> tuple[list[Range], list[float]]:
        ranges, scalars = self.timeline.read(also)
        self.loop_operations.noted = 0
        self.events.resets.absorb(ranges)
        self._losses.absorb(ranges, self.step)
        outputs = [OutputRange(r.entry.name, r.minimum, r.maximum) for r in ranges if r.entry.kind == "output"]
        if outputs:
            self.observations[Activations] = Activations(tuple(outputs))
        return ranges, scalars

    def _find_origins(self, ranges: list[Range], bad: dict[str, str], count: int) -> None:
        if self._replays >= _MOST_REPLAYS:
            return
        found = self._by_ourselves(lambda: self._origins(ranges, bad, count), Nonfinite(None, None))
        self.observations[Nonfinite] = found
        if found.forward is not None or found.gradient is not None:
            self._replays += 1
            self._on_nonfinite(found)

    def _origins(self, ranges: list[Range], bad: dict[str, str], count: int) -> Nonfinite:
        calls = self.recorder.calls
        forward = forward_origin(ranges, calls, self._exempt)
        if forward is not None:
            follows = forward.source == "parameter" and self._replays  # an earlier step put it there, and was reported
            return Nonfinite(None if follows else forward, None)
        if not bad:
            return Nonfinite(None, None)
        kind = "NaN" if "NaN" in bad.values() else "Inf"
        return Nonfinite(None, gradient_origin(ranges, calls, kind, tuple(bad), count))

    def _end_step(self, step: int) -> None:
        self.recorder.forget()
        ended, looked, self.step = self.step, self.active, step
        self._looked += looked
        thorough = self._looked < FIRST_STEPS or self._looked % SAMPLED_EVERY == 0
        for hooks in self.hooks:
            hooks.look(self.active, thorough=thorough)
        self._on_step_end(ended, looked)
        self.observations.clear()

    def summarise(self) -> None:
        """Put the observations that speak of the whole run so far among the others."""
        self._by_ourselves(lambda: self.events.resets.absorb(self.timeline.read()[0]), None)
        self.observations[OptimizerEvents] = self.events.observation
        self.observations[ScalerUse] = self.events.scaler
        self.observations[Losses] = self.losses
        self.observations[TrainingModes] = self._modes.observation

    @property
    def losses(self) -> Losses:
        """What backward() was called on."""
        return self._losses.observation

    def _note_losses(self, losses: list[Tensor]) -> None:
        for loss in losses:
            if isinstance(loss, Tensor) and loss.numel() == 1 and has_range(loss) and self.active:
                self.timeline.record("loss", "loss", loss)

    def _names(self, number: int) -> dict[int, str]:
        """id(parameter) → path; walked through once for each optimizer and each set of models."""
        if (wanted := (number, len(self.hooks))) not in self._named_for:
            self._named = {id(p): name for hooks in self.hooks for name, p in hooks.named_parameters()}
            self._named_for.add(wanted)
        return self._named

    def _by_ourselves(self, act: Callable[[], Result], otherwise: Result) -> Result:
        """Do the tool's own work: unseen by its hooks, and if it fails, it is the tool's failure and not the loop's."""
        armed, self.paused = self.loop_operations.armed, True
        for hooks in self.hooks:
            hooks.paused = True
        self.loop_operations.disarm()
        try:
            return act()
        except Exception as error:
            if not self.failed:
                self.failed = f"Observing step {self.step} raised {type(error).__name__}: {error}"
                _log.warning("%s. The loop goes on.", self.failed, exc_info=True)
            return otherwise
        finally:
            self.paused = False
            for hooks in self.hooks:
                hooks.paused = False
            if armed:
                self.loop_operations.arm()

"""Watches a live loop: attaches the hooks, receives its events, and reads its values once in each step.

The tool's own work runs while `paused` is true, which every hook respects.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from debugkit.gradient_norms import GradientNorms
from debugkit.loop.events import LoopEvents
from debugkit.loop.load_history import LoadHistory
from debugkit.loop.losses import Losses
from debugkit.loop.mode_history import ModeHistory
from debugkit.loop.operations import LoopOperations
from debugkit.loop.optimizer_events import OptimizerEvents
from debugkit.loop.pace import Pace
from debugkit.loop.scaler_use import ScalerUse
from debugkit.loop.stages import Stages
from debugkit.loop.state_loads import StateLoads
from debugkit.loop.step_reader import StepReader, StepReading
from debugkit.loop.training_modes import TrainingModes
from debugkit.observer import Observer
from debugkit.probe import SAMPLED_EVERY, THOROUGH_STEPS
from debugkit.recorders.module_calls import run_new_hooks
from debugkit.recorders.output_ranges import ModuleHooks, Running
from debugkit.recorders.timeline import Timeline, has_range
from debugkit.step_replay.calls import CallRecorder, ModuleCall
from debugkit.step_replay.nonfinite import Nonfinite

Result = TypeVar("Result")
_log = logging.getLogger("debugkit")
_MOST_CALLS = 64  # recorded in one step; more than that is no training step, and the batches would fill the memory
_EVALUATIONS = 3  # recorded in a step, and from then on the 4th, 8th, 16th…
_MOST_REPLAYS = 3  # in one run: after the first NaN, everything is NaN


class Monitor(Observer):
    """The hooks of one run. `on_nonfinite` is called before the parameters change, `on_step_end` after.

    `on_stage` is called when the loop has left the model that it trained before, as `stages` decides. Hooks for the
    next model are attached inside the context manager that it receives: a call of the model has begun.

    `observations` holds the observations of the current step. `on_step_end` receives the number of the step and whether
    its values were recorded.
    """

    def __init__(
        self,
        models: Iterable[tuple[str, nn.Module]],
        optimizers: Iterable[Optimizer] | None,
        *,
        every: int | None = 1,
        on_nonfinite: Callable[[Nonfinite], None] = lambda _: None,
        on_step_end: Callable[[int, bool], None] = lambda _, __: None,
        on_stage: Callable[[AbstractContextManager[None]], None] = lambda _attaching: None,
        probes: Observer | None = None,
    ) -> None:
        self.timeline = Timeline()
        self.paused = False
        self.step = 0
        """The number of the current step. Optimizers that take turns share one."""
        self.recorder = CallRecorder()
        self.events = LoopEvents(self.timeline, self, optimizers, lambda: self.paused)
        self.running = Running()
        self.hooks = [self._hooks_of(path, model) for path, model in models]
        self._reader = StepReader(self.timeline, self.events.resets, self.hooks)
        self.loop_operations = LoopOperations(self.timeline)
        self._pace = Pace(every)
        self.active = True
        """Whether the values of this step are recorded."""
        self._evaluations = 0  # calls of the step outside training
        self._forwards = 0  # calls with gradients since the last backward()
        self._on_nonfinite = on_nonfinite
        self._on_step_end = on_step_end
        self._on_stage = on_stage
        self.probes = probes or Observer()
        self._replays = 0
        self._scaled = False
        self._begun: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # optimizers that have stepped
        self._looked = 0  # steps whose values were recorded
        self.failed = ""  # the first exception of the tool itself, in one sentence
        self._modes = ModeHistory()
        self._loads = LoadHistory()
        self.stages: Stages | None = None
        """Which of several models the loop trains now, where they were found while it runs."""
        self._begins_stage = False
        self.on_call: Callable[[ModuleCall, Any], None] | None = None
        """Called with each recorded call of a watched model, and its output."""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as attaching:
            attaching.callback(self.loop_operations.disarm)
            attaching.enter_context(self.events)
            attaching.enter_context(self._loads)
            attaching.enter_context(self._modes)
            attaching.callback(self._unhook)
            for hooks in self.hooks:
                hooks.__enter__()
            self._pace.measure(hooks.model for hooks in self.hooks)
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
        """Hook a model that was found while the loop runs; submodules that were hooked alone now belong to it."""
        parts = set(map(id, model.modules()))
        for known in [hooks for hooks in self.hooks if id(hooks.model) in parts]:
            known.__exit__()
            self.hooks.remove(known)
        hooks = self._hooks_of(path, model)
        hooks.active = self.active
        self.hooks.append(hooks.__enter__())
        self._pace.measure(hooks.model for hooks in self.hooks)
        return hooks

    def _hooks_of(self, path: str, model: nn.Module) -> ModuleHooks:
        return ModuleHooks(model, timeline=self.timeline, listener=self, prefix=path, running=self.running)

    @property
    def observations(self) -> dict[type, object]:
        """The observations of the current step, by type."""
        return self._reader.observations

    def begin_stage(self, model: nn.Module) -> None:
        """The loop trains another of its models from now on: its paths have no prefix, and the values inside it are
        recorded as in the first steps of the run."""
        for hooks in self.hooks:
            if hooks.model is model:
                hooks.rename("")
            elif not hooks.prefix:
                hooks.rename(f"{type(hooks.model).__name__}.")
        self._reader.forget_names()
        self._pace.begin_stage(self.step)
        self._looked = 0
        self.active = self._pace.looks_at(self.step)
        for hooks in self.hooks:
            hooks.look(self.active, thorough=True)

    def is_watched(self, module: nn.Module) -> bool:
        """Whether `module` is a watched model, or a submodule of one."""
        return any(hooks.hooks_on(module) for hooks in self.hooks)

    @property
    def roots(self) -> list[tuple[str, nn.Module]]:
        """The watched models with the prefixes of their paths."""
        return [(hooks.prefix, hooks.model) for hooks in self.hooks]

    @property
    def models(self) -> list[nn.Module]:
        """The watched models."""
        return [hooks.model for hooks in self.hooks]

    @property
    def optimizers(self) -> list[Optimizer]:
        """The watched optimizers that still exist."""
        return self.events.optimizers

    @property
    def backwards(self) -> int:
        """How often the loop has called backward()."""
        return self.events.backwards

    @property
    def calls(self) -> list[ModuleCall]:
        """The module calls of the step so far."""
        return self.recorder.calls

    # Calls of the model

    def leaves_out(self) -> bool:
        """Whether the call that begins is not recorded: most of many evaluations, such as moves of a policy."""
        if torch.is_grad_enabled():
            return False
        self._evaluations += 1
        count = self._evaluations
        doubles = count & (count - 1) == 0
        if self._pace.is_tiny and self._looked >= THOROUGH_STEPS:  # recording a call takes longer than the call itself
            return not doubles or count.bit_length() % 2 == 0  # all but the 1st, 4th, 16th…
        return count > _EVALUATIONS and not doubles

    def call_started(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        self.loop_operations.disarm()
        if self._begins_stage and torch.is_grad_enabled():  # not in the step: probes add hooks, which PyTorch iterates
            self._begins_stage = False
            self._guarded(lambda: self._on_stage(run_new_hooks(module, args, kwargs)), None)
        self._forwards += torch.is_grad_enabled()
        if len(self.recorder.calls) >= _MOST_CALLS:
            self._read()
            self.recorder.forget()
        return self.recorder.start(path.rstrip("."), module, args, kwargs)

    def call_ended(self, output: Any) -> None:
        self.recorder.end(output)
        if self.on_call is not None:
            self.on_call(self.recorder.calls[-1], output)
        if torch.is_grad_enabled():
            self.loop_operations.arm()
        elif not any(call.grad_enabled for call in self.recorder.calls):
            self._read()  # evaluation: no optimizer step follows that would read
            self.recorder.forget()

    # Events of the loop

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        self.loop_operations.disarm()
        if not self._scaled:
            self._note_losses(losses)
        self._scaled = False
        self._forwards = 0
        if self.active:
            self.probes.before_backward(losses)

    def after_backward(self) -> None:
        if self.active:
            self.probes.after_backward()

    def before_scale(self, losses: Sequence[Tensor], /) -> None:
        self.loop_operations.disarm()  # the scaler handles an overflow of the scaled loss
        self._note_losses(losses)
        self._scaled = True

    def optimizer_step_begins(self, _optimizer: Optimizer, /) -> None:
        self.loop_operations.disarm()

    def before_optimizer_step(self, optimizer: Optimizer, /) -> None:
        self.loop_operations.disarm()
        self._examine(optimizer)
        if self.active:
            norms = self.observations.get(GradientNorms)
            if isinstance(norms, GradientNorms):
                self.probes.gradient_norms_read(optimizer, norms)
            self.probes.before_optimizer_step(optimizer)

    def after_optimizer_step(self, optimizer: Optimizer, /) -> None:
        if self.events.closure_calls not in (None, 1):  # LBFGS: the parameters change between the calls
            self._examine(optimizer)
        if optimizer not in self._begun:
            self._begun.add(optimizer)
            self._pace.begin_stage(self.step)
        self._modes.note(self.hooks, optimizer, self.step)
        if self.active:
            self.probes.after_optimizer_step(optimizer)
        self._end_step(self.step + self.events.note_turn(optimizer))
        if self.stages is not None:
            self._begins_stage |= self.stages.stepped(optimizer, self.models)

    def step_skipped(self) -> None:
        if self.active:
            self._read()
        self._end_step(self.step)

    def finish(self) -> None:
        """Read what the last, unfinished step has recorded."""
        self._read()

    # Reading, and what follows from it

    def _examine(self, optimizer: Optimizer) -> None:
        number = self.events.number_of(optimizer)
        if self.active and number is not None:
            self._report_origins(lambda: self._reader.read_with_gradients(self.step, optimizer, number))

    def _read(self) -> None:
        self._report_origins(lambda: self._reader.read(self.step))

    def _report_origins(self, read: Callable[[], StepReading]) -> None:
        self.loop_operations.noted = 0
        reading = self._guarded(read, StepReading())
        if self._replays >= _MOST_REPLAYS:
            return
        repeated = self._replays > 0
        found = self._guarded(
            lambda: self._reader.origins(reading, self.calls, repeated=repeated), Nonfinite(None, None)
        )
        self.observations[Nonfinite] = found
        if found.forward is not None or found.gradient is not None:
            self._replays += 1
            self._on_nonfinite(found)

    def _end_step(self, step: int) -> None:
        self.recorder.forget()
        ended, looked, self.step = self.step, self.active, step
        self.active, self._evaluations = self._pace.looks_at(step), 0
        self._looked += looked
        thorough = self._looked < THOROUGH_STEPS or self._looked % SAMPLED_EVERY == 0
        if thorough:
            self.recorder.forget_modules()
        for hooks in self.hooks:
            hooks.look(self.active, thorough=thorough)
        self._on_step_end(ended, looked)
        self.observations.clear()

    def summarise(self) -> None:
        """Add the observations of the whole run so far."""
        self._guarded(lambda: self.events.resets.absorb(self.timeline.read()[0]), None)
        self.observations[OptimizerEvents] = self.events.observation
        self.observations[ScalerUse] = self.events.scaler
        self.observations[Losses] = self.losses
        self.observations[TrainingModes] = self._modes.observation
        self.observations[StateLoads] = self._loads.observation(self.roots)

    @property
    def losses(self) -> Losses:
        """The losses that backward() was called on."""
        return self._reader.losses.observation

    def _note_losses(self, losses: Sequence[Tensor]) -> None:
        for loss in losses:
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                continue
            self.events.plateaus.add_loss(loss)
            if self.active and has_range(loss):
                self.timeline.record("loss", "loss", loss)
                self._reader.losses.recorded(self._forwards)

    def _guarded(self, act: Callable[[], Result], otherwise: Result) -> Result:
        """Do the tool's own work with all recording paused; an exception is logged and does not reach the loop."""
        armed, self.paused = self.loop_operations.armed, True
        for hooks in self.hooks:
            hooks.paused = True
        self.loop_operations.disarm()
        try:
            return act()
        except Exception as error:
            if not self.failed:
                self.failed = f"Observing step {self.step} raised {type(error).__name__}: {error}"
                _log.warning("%s. The loop continues.", self.failed, exc_info=True)
            return otherwise
        finally:
            self.paused = False
            for hooks in self.hooks:
                hooks.paused = False
            if armed:
                self.loop_operations.arm()

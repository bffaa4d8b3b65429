"""The probes of `debugkit.probes`, attached to a live loop: a probe that fails is dropped, the loop goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from debugkit.finding import NotExamined, Unexamined
from debugkit.monitor.loop_operations import mode_stack, set_mode_stack
from debugkit.monitor.step_stations import StepStations
from debugkit.observations.gradients import GradientNorms
from debugkit.probes import FIRST_STEPS, Probe
from debugkit.step import one_line
from debugkit.subject import Subject


class ProbeStations(StepStations):
    """Forwards a step's stations to probes, and yields what they saw. `missing` says what is not seen, and why.

    A probe with `watch_every` rests, detached, in the steps between its samples and in those that are not looked at.
    """

    def __init__(self, probe_classes: Sequence[type[Probe[object]]], subject: Subject) -> None:
        self.missing: dict[type, Unexamined] = {}
        self._attached: list[Probe[object]] = []
        self._modes: dict[type, list[Any]] = {}  # the function modes that each probe put on PyTorch's stack
        self._steps_left: dict[type, int | None] = {}
        self._resting: list[Probe[object]] = []
        self._looked = 0  # steps that were looked at
        self._may_rest = not _is_compiled(subject.model)  # hooks that come and go make a compiled model compile again
        for cls in probe_classes:
            self._guarded(cls.yields, lambda cls=cls: self._attach(cls, subject))  # type: ignore[misc]

    def _attach(self, cls: type[Probe[object]], subject: Subject) -> None:
        if cls.watch_steps is not None and _is_compiled(subject.model):
            raise NotExamined("The model is compiled, so its single operations cannot be heard: use debugkit.check().")
        probe = cls(subject)
        before = mode_stack()
        probe.__enter__()
        self._modes[cls.yields] = [mode for mode in mode_stack() if not _among(mode, before)]
        self._attached.append(probe)
        self._steps_left[cls.yields] = cls.watch_steps

    def close(self) -> None:
        """Detach every probe."""
        for probe in list(self._attached):
            self._drop(probe)
        self._resting = []

    def before_backward(self, losses: list[Tensor]) -> None:
        if losses:
            self._each(lambda probe: probe.before_backward(losses[0]))

    def after_backward(self) -> None:
        self._each(lambda probe: probe.after_backward())

    def norms_read(self, optimizer: Optimizer, norms: GradientNorms) -> None:
        self._each(lambda probe: probe.gradient_norms_read(optimizer, norms))

    def before_step(self, optimizer: Optimizer) -> None:
        self._each(lambda probe: probe.before_optimizer_step(optimizer))

    def after_step(self, optimizer: Optimizer) -> None:
        self._each(lambda probe: probe.after_optimizer_step(optimizer))

    def end_step(self, step: int, seen: dict[type, object], *, looked: bool, will_look: bool) -> None:
        """The step is over: put what each probe saw into `seen`, detach those that were to see a few steps only.

        Without `looked`, nothing is read; the probes still let go of the step, and go themselves when their time is up.
        `will_look` says whether the next step is looked at.
        """
        for probe in list(self._attached):
            self._guarded(probe.yields, lambda probe=probe: self._end(probe, step, seen, looked))  # type: ignore[misc]
            left = self._steps_left[probe.yields]
            self._steps_left[probe.yields] = None if left is None else left - 1
            if left is not None and left <= 1:
                self._drop(probe)
        self._looked += looked
        if self._may_rest:
            self._change_shifts(will_look)

    def _change_shifts(self, will_look: bool) -> None:
        for probe in [probe for probe in self._attached if probe.watch_every > 1 and not self._works(probe, will_look)]:
            if self._guarded(probe.yields, lambda probe=probe: self._drop(probe)):  # type: ignore[misc]
                self._resting.append(probe)
        for probe in [probe for probe in self._resting if self._works(probe, will_look)]:
            self._resting.remove(probe)
            if self._guarded(probe.yields, probe.__enter__):
                self._attached.append(probe)

    def _works(self, probe: Probe[object], will_look: bool) -> bool:
        """Whether a probe is attached in the next step."""
        return will_look and (self._looked < FIRST_STEPS or self._looked % probe.watch_every == 0)

    def recall(self, seen: dict[type, object]) -> None:
        """Put into `seen` what the resting probes saw last: rules that speak of the whole run may need it beside."""
        for probe in self._resting:
            if probe.yields not in seen:
                self._guarded(probe.yields, lambda probe=probe: self._observe(probe, seen))  # type: ignore[misc]

    def _observe(self, probe: Probe[object], seen: dict[type, object]) -> None:
        seen[probe.yields] = probe.observation

    def loop_ended(self, seen: dict[type, object]) -> None:
        """The loop is over: put into `seen` what those probes say who waited for what came after the last step."""
        for probe in list(self._attached):
            if type(probe).loop_ended is not Probe.loop_ended:
                self._guarded(probe.yields, lambda probe=probe: self._end_loop(probe, seen))  # type: ignore[misc]

    def loop_failed(self) -> dict[type, object]:
        """The loop raised: what those probes saw of the broken step who can say so."""
        seen: dict[type, object] = {}
        for probe in list(self._attached):
            if type(probe).loop_failed is not Probe.loop_failed:
                self._guarded(probe.yields, lambda probe=probe: self._fail_loop(probe, seen))  # type: ignore[misc]
        return seen

    def _fail_loop(self, probe: Probe[object], seen: dict[type, object]) -> None:
        probe.loop_failed()
        self._observe(probe, seen)

    def _end_loop(self, probe: Probe[object], seen: dict[type, object]) -> None:
        probe.loop_ended()
        self._observe(probe, seen)

    def _end(self, probe: Probe[object], step: int, seen: dict[type, object], looked: bool) -> None:
        probe.end_step(step)
        if not looked:
            return
        try:
            seen[probe.yields] = probe.observation
            self.missing.pop(probe.yields, None)
        except NotExamined as limit:
            self.missing[probe.yields] = Unexamined("", str(limit))

    def _each(self, tell: Callable[[Probe[object]], Any]) -> None:
        for probe in list(self._attached):
            if not self._guarded(probe.yields, lambda probe=probe: tell(probe)):  # type: ignore[misc]
                self._drop(probe)

    def _drop(self, probe: Probe[object]) -> None:
        """Detach a probe. A mode leaves PyTorch's stack by taking off the top, which may be another probe's by now."""
        self._attached = [other for other in self._attached if other is not probe]
        stack = mode_stack()
        try:
            probe.__exit__(None, None, None)
        finally:
            set_mode_stack([mode for mode in stack if not _among(mode, self._modes[probe.yields])])

    def _guarded(self, kind: type, act: Callable[[], object]) -> bool:
        try:
            act()
        except NotExamined as limit:
            self.missing[kind] = Unexamined("", str(limit))
        except Exception as error:
            self.missing[kind] = Unexamined("", f"Observing it raised {one_line(error)}.", error)
            return False
        return True


def _among(mode: Any, modes: list[Any]) -> bool:
    return any(mode is other for other in modes)


def _is_compiled(model: nn.Module) -> bool:
    return any(hasattr(part, "_orig_mod") or part._compiled_call_impl is not None for part in model.modules())

"""Turns what a step has left on the timeline into observations: gradient norms, activations, the first NaN or Inf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor
from torch.optim import Optimizer

from debugkit._torch_private import without_torch_function
from debugkit.gradient_norms import GradientNorms
from debugkit.loop.gradient_resets import GradientResets
from debugkit.loop.loss_history import LossHistory
from debugkit.recorders.activations import Activations, OutputRange
from debugkit.recorders.gradient_norms import GradientReading
from debugkit.recorders.output_ranges import ModuleHooks
from debugkit.recorders.timeline import Range, Timeline
from debugkit.step_replay.calls import ModuleCall
from debugkit.step_replay.locate import Exempt, forward_origin, gradient_origin
from debugkit.step_replay.nonfinite import Nonfinite


@dataclass(frozen=True)
class StepReading:
    """The ranges that were read, and which of the optimizer's gradients are not finite."""

    ranges: list[Range] = field(default_factory=list)
    nonfinite_gradients: dict[str, str] = field(default_factory=dict)
    """Parameter path → NaN or Inf."""
    gradient_count: int = 0


class StepReader:
    """Reads the timeline of a loop with one transfer from the device; `observations` holds what the last step gave."""

    def __init__(self, timeline: Timeline, resets: GradientResets, hooks: list[ModuleHooks]) -> None:
        self.observations: dict[type, object] = {}
        self.losses = LossHistory()
        self._timeline = timeline
        self._resets = resets
        self._hooks = hooks  # the monitor's own list, which grows when a model is added
        self._exempt: Exempt = set()
        self._names: dict[int, str] = {}
        self._names_read_for: set[tuple[int, int]] = set()

    def read(self, step: int) -> StepReading:
        """Read what the step has recorded so far."""
        return StepReading(self._take(step, [])[0])

    def read_with_gradients(self, step: int, optimizer: Optimizer, number: int) -> StepReading:
        """The same, together with the norms of the gradients that this optimizer is about to use."""
        with without_torch_function():
            gradients = GradientReading(optimizer, self._parameter_names(number))
            ranges, norms = self._take(step, gradients.scalars())
            self.observations[GradientNorms] = GradientNorms(step, number, gradients.named(norms))
            return StepReading(ranges, gradients.nonfinite(norms), gradients.count)

    def origins(self, reading: StepReading, calls: Sequence[ModuleCall], *, repeated: bool) -> Nonfinite:
        """Where the first non-finite value came from.

        With `repeated`, an earlier origin was already reported. A non-finite parameter then follows from that one and
        is not reported again.
        """
        forward = forward_origin(reading.ranges, calls, self._exempt)
        if forward is not None:
            return Nonfinite(None if forward.source == "parameter" and repeated else forward, None)
        bad = reading.nonfinite_gradients
        if not bad:
            return Nonfinite(None, None)
        kind = "NaN" if "NaN" in bad.values() else "Inf"
        return Nonfinite(None, gradient_origin(reading.ranges, calls, kind, tuple(bad), reading.gradient_count))

    def _take(self, step: int, also: list[Tensor]) -> tuple[list[Range], list[float]]:
        ranges, scalars = self._timeline.read(also)
        self._resets.absorb(ranges)
        self.losses.absorb(ranges, step)
        outputs = [OutputRange(r.entry.name, r.minimum, r.maximum) for r in ranges if r.entry.kind == "output"]
        if outputs:
            self.observations[Activations] = Activations(tuple(outputs))
        return ranges, scalars

    def forget_names(self) -> None:
        """The paths of the models have changed."""
        self._names_read_for.clear()

    def _parameter_names(self, number: int) -> dict[int, str]:
        """id(parameter) → path; collected once for each optimizer and each set of models."""
        if (wanted := (number, len(self._hooks))) not in self._names_read_for:
            self._names = {id(p): name for hooks in self._hooks for name, p in hooks.named_parameters()}
            self._names_read_for.add(wanted)
        return self._names

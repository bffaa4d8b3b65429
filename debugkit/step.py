"""One observed training step (forward, loss, backward, optimizer step) with probes attached."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from debugkit._torch_private import is_compiled
from debugkit.distributed.wrappers import without_communication
from debugkit.finding import NotExamined
from debugkit.frames import one_line, raising_line
from debugkit.plain_data import at_line
from debugkit.probe import PHASES, Phase, Probe
from debugkit.setup import TrainingSetup


class ObservedStep:
    """Runs the step, then returns the observation of each probe if it is valid."""

    def __init__(self, setup: TrainingSetup) -> None:
        self.setup = setup
        self.reached: Phase = "forward"
        self.error: Exception | None = None
        self._refused: dict[type, Exception] = {}
        """What probes raised when they were attached, by what they yield: they observe nothing."""

    def run(self, probes: Sequence[Probe[Any]]) -> None:
        """Run one step in the model's current mode. An exception of the model is stored, not raised."""
        with quiet_eager(self.setup.model), contextlib.ExitStack() as attached:
            working = [probe for probe in probes if self._attach(probe, attached)]
            try:
                self._step(working)
            except Exception as error:
                self.error = error
                for probe in working:
                    probe.step_failed(error, self.reached)
            for probe in working:
                probe.end_step(0)

    def _attach(self, probe: Probe[Any], attached: contextlib.ExitStack) -> bool:
        try:
            attached.enter_context(probe)
        except Exception as error:
            self._refused[probe.yields] = error
            return False
        return True

    def _step(self, probes: Sequence[Probe[Any]]) -> None:
        loss = self.setup.loss()
        self.reached = "backward"
        for probe in probes:
            probe.before_backward([loss])
        loss.backward()  # type: ignore[no-untyped-call]
        for probe in probes:
            probe.after_backward()
        value = loss.detach()
        del loss
        self.reached = "optimizer"
        for optimizer in self.setup.optimizers:
            for probe in probes:
                probe.before_optimizer_step(optimizer)
            _step(optimizer, value)
            for probe in probes:
                probe.after_optimizer_step(optimizer)
        self.reached = "done"

    @property
    def failure(self) -> str | None:
        """The reason why the step failed, in one sentence. None if it completed."""
        if self.error is None:
            return None
        if isinstance(self.error, NotExamined):
            return str(self.error)
        line = raising_line(self.error.__traceback__)
        where = at_line(line)
        return f"The training step raised {one_line(self.error)}{where}."

    def observation_of(self, probe: Probe[Any]) -> object:
        """The probe's observation. Raises NotExamined if the step failed too early for it to be valid.

        Raises what the probe raised when it was attached.
        """
        if probe.yields in self._refused:
            raise self._refused[probe.yields]
        came_far_enough = PHASES.index(self.reached) > PHASES.index(probe.complete_after)
        if self.failure is not None and not (probe.partial or came_far_enough):
            raise NotExamined(self.failure)
        return probe.observation


def _step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One update. An optimizer that requires a closure (LBFGS) uses the loss and the gradients of this step."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        optimizer.step(lambda: loss)  # type: ignore[arg-type,return-value]
    else:
        optimizer.step()


@contextlib.contextmanager
def quiet_eager(model: nn.Module) -> Iterator[None]:
    """Run a setup's code with gradients enabled, without warnings, compilation or communication with other ranks.

    Warnings appear in the real run. Under `-W error`, a warning would end the step before a rule can explain it.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(without_communication(model))
        if is_compiled(model):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield

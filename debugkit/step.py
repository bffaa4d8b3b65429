"""One observed training step: forward, loss, backward, optimizer step, with probes attached to all of it."""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from debugkit.distributed.wrappers import without_communication
from debugkit.finding import NotExamined
from debugkit.frames import raising_line
from debugkit.probes import PHASES, Phase, Probe
from debugkit.subject import Subject


class ObservedStep:
    """Runs the step and then tells, probe by probe, whether what it saw counts."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.reached: Phase = "forward"
        self.error: Exception | None = None

    def run(self, probes: Sequence[Probe[Any]]) -> None:
        """Run one step in whatever mode the model is in. An exception of the model is kept, not raised."""
        with quiet_eager(self.subject.model), contextlib.ExitStack() as attached:
            for probe in probes:
                attached.enter_context(probe)
            try:
                self._step(probes)
            except Exception as error:
                self.error = error
                for probe in probes:
                    probe.step_failed(error, self.reached)
            for probe in probes:
                probe.end_step(0)

    def _step(self, probes: Sequence[Probe[Any]]) -> None:
        loss = self.subject.loss()
        self.reached = "backward"
        for probe in probes:
            probe.before_backward(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        for probe in probes:
            probe.after_backward()
        value = loss.detach()
        del loss
        self.reached = "optimizer"
        for optimizer in self.subject.optimizers:
            for probe in probes:
                probe.before_optimizer_step(optimizer)
            _step(optimizer, value)
            for probe in probes:
                probe.after_optimizer_step(optimizer)
        self.reached = "done"

    @property
    def failure(self) -> str | None:
        """What ended the step, in one sentence; None if it ran through."""
        if self.error is None:
            return None
        if isinstance(self.error, NotExamined):
            return str(self.error)
        line = raising_line(self.error.__traceback__)
        where = f" at {line.file}:{line.line}" if line else ""
        return f"The training step raised {one_line(self.error)}{where}."

    def observation_of(self, probe: Probe[Any]) -> object:
        """The probe's observation. Raises NotExamined if the step did not come far enough for it to mean anything."""
        came_far_enough = PHASES.index(self.reached) > PHASES.index(probe.complete_after)
        if self.failure is not None and not (probe.partial or came_far_enough):
            raise NotExamined(self.failure)
        return probe.observation


def _step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One update; an optimizer that insists on a closure (LBFGS) gets the loss and the gradients of this step."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        optimizer.step(lambda: loss)  # type: ignore[arg-type,return-value]
    else:
        optimizer.step()


def one_line(error: BaseException) -> str:
    """`ValueError: …`, the first line of the message only and not more than 160 characters."""
    text = str(error).strip().partition("\n")[0].rstrip(".")
    kind = type(error).__name__
    return f"{kind}: {text[:160]}" if text else kind


@contextlib.contextmanager
def quiet_eager(model: nn.Module) -> Iterator[None]:
    """Gradients on, warnings silent, compiled modules eager, other ranks not involved: how a subject's code is run.

    Warnings are the real run's to show; under `-W error` one would end the step before a rule could explain it.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(without_communication(model))
        if any(_is_compiled(module) for module in model.modules()):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def _is_compiled(module: nn.Module) -> bool:
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return getattr(module, "_compiled_call_impl", None) is not None or (
        dynamo is not None and isinstance(module, dynamo.OptimizedModule)
    )

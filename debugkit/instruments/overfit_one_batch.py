"""overfit_one_batch: a model that cannot memorise one batch will not learn a dataset."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.instruments.overfit_result import Overfit, Suspect
from debugkit.interventions.losses import losses_of
from debugkit.measurements.graph_cut.search import graph_cut_of
from debugkit.preserve_state import preserved
from debugkit.randomness import same_randomness
from debugkit.setup import LossFn, TrainingSetup
from debugkit.step import quiet_eager

__all__ = ["Overfit", "Suspect", "overfit_one_batch"]


def overfit_one_batch(
    model: nn.Module,
    batch: Any,
    loss_fn: LossFn | None = None,
    *,
    steps: int = 100,
    learning_rate: float = 1e-3,
    threshold: float = 0.1,
    seed: int = 0,
) -> Overfit:
    """Train on one batch with Adam and report whether the loss fell below `threshold` times its start.

    Every step draws the same random numbers (dropout, the noise and time of a flow-matching head), so the task is
    fixed. If the batch is not learnt, suspects are measured one after another: a loss that is not finite, a cut graph,
    weights that no step changes, a learning rate that is ten times too high or too low, too few steps. What remains is
    the labels or the capacity. The model is restored bit for bit.

    Raises NotExamined if there is no scalar loss, and ValueError if `steps` is less than 1.

    >>> x = torch.randn(8, 4)
    >>> model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    >>> overfit = overfit_one_batch(model, x, lambda m, x: (m(x) - x[:, :1]).pow(2).mean(), learning_rate=1e-2)
    >>> bool(overfit), len(overfit.losses)
    (True, 101)
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, but is {steps}.")
    training = _Training(TrainingSetup.of(model, batch, loss_fn), steps, threshold, seed)
    with quiet_eager(model):
        losses, moved = training.run(learning_rate, steps)
        verdict = training.verdict(losses)
        suspects = () if verdict == "learnt" else _ladder(training, losses, moved, learning_rate)
    return Overfit(tuple(losses), verdict, threshold, suspects)


@dataclass(frozen=True)
class _Training:
    """What stays the same from one suspect to the next."""

    setup: TrainingSetup
    steps: int
    threshold: float
    seed: int

    def run(self, learning_rate: float, steps: int) -> tuple[list[float], int]:
        """The loss before each step and after the last, and how many trainable parameters moved."""
        parameters = [p for p in self.setup.model.parameters() if p.requires_grad]
        if not parameters:
            raise NotExamined("No parameter has requires_grad=True, so nothing can be learnt.")
        with preserved(self.setup):
            before = [p.detach().clone() for p in parameters]
            optimizer = torch.optim.Adam(parameters, lr=learning_rate)
            losses = [self._loss_and_step(optimizer)]
            while len(losses) < steps and math.isfinite(losses[-1]):
                losses.append(self._loss_and_step(optimizer))
            if math.isfinite(losses[-1]):
                losses.append(self._loss_and_step(None))
            moved = sum(not torch.equal(p.detach(), start) for p, start in zip(parameters, before, strict=True))
        return losses, moved

    def _loss_and_step(self, optimizer: torch.optim.Optimizer | None) -> float:
        with same_randomness(self.seed):
            losses = losses_of(self.setup)
            value = float(sum(loss.detach().double() for loss in losses))
            needing = [loss for loss in losses if loss.requires_grad]
            if optimizer is not None and needing and math.isfinite(value):
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(needing)
                optimizer.step()
        return value

    def verdict(self, losses: list[float]) -> Literal["learnt", "stuck", "diverged"]:
        if not math.isfinite(losses[-1]) or losses[-1] > losses[0]:
            return "diverged"
        # A start of next to nothing has nothing left to learn.
        return "learnt" if losses[-1] <= max(self.threshold * losses[0], 1e-9) else "stuck"


def _ladder(training: _Training, losses: list[float], moved: int, learning_rate: float) -> tuple[Suspect, ...]:
    trainable = sum(p.requires_grad for p in training.setup.model.parameters())
    suspects = [
        _not_finite(losses),
        _cut_graph(training.setup),
        Suspect("weights that stay", moved < trainable / 2, f"{moved} of {trainable} trainable parameters moved"),
        _too_high(training, learning_rate / 10, losses),
        _too_low(training, learning_rate * 10, losses),
    ]
    return (*suspects, _what_remains(losses, explained=any(one.guilty for one in suspects)))


def _not_finite(losses: list[float]) -> Suspect:
    bad = next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), None)
    said = "every loss is finite" if bad is None else f"the loss is {losses[bad]} at step {bad}: first_nonfinite next"
    return Suspect("NaN or Inf", bad is not None, said)


def _cut_graph(setup: TrainingSetup) -> Suspect:
    found = graph_cut_of(setup)
    said = f"the gradient reaches {found.reached} of {found.trainable} trainable parameters"
    return Suspect("cut graph", bool(found), f"{said}: find_graph_cut says where it ends" if found else said)


def _too_high(training: _Training, rate: float, losses: list[float]) -> Suspect:
    """Guilty if half the steps at a tenth of the rate end below half of what the given rate reached."""
    curve, _ = training.run(rate, max(1, training.steps // 2))
    reached = losses[-1] if math.isfinite(losses[-1]) else losses[0]
    return Suspect("learning rate too high", curve[-1] < 0.5 * reached, _curve(rate, curve))


def _too_low(training: _Training, rate: float, losses: list[float]) -> Suspect:
    """Guilty if half the steps at ten times the rate take the loss down more than twice as far."""
    curve, _ = training.run(rate, max(1, training.steps // 2))
    fell, would_fall = losses[0] - losses[-1], curve[0] - curve[-1]
    return Suspect("learning rate too low", would_fall > 2 * max(fell, 0.0), _curve(rate, curve))


def _curve(rate: float, losses: list[float]) -> str:
    return f"at {rate:g}: {losses[0]:.4g} → {losses[-1]:.4g} in {len(losses) - 1} steps"


def _what_remains(losses: list[float], explained: bool) -> Suspect:
    """Still falling at the end is too short; flat is all that this model can reach with these labels."""
    tail = losses[len(losses) * 3 // 4 :]
    said = f"the last quarter took the loss from {tail[0]:.4g} to {tail[-1]:.4g}"
    if tail[-1] < 0.9 * tail[0]:
        return Suspect("too few steps", not explained, said)
    if not explained:
        said += "; flat: one input with two answers, a target out of reach, or too small a model"
    return Suspect("labels or capacity", not explained, said)

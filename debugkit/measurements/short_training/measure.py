"""Trains on one batch for a few steps. Every step draws the same random numbers, so that the task does not change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from debugkit.finding import NotExamined
from debugkit.interventions.program_lines import built_at
from debugkit.measurements.short_training import LearningRates, LearningRateTrial, OneBatchTraining, RateTrial
from debugkit.preserve_state import preserved
from debugkit.randomness import same_randomness
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, clone_tensors, map_tensors

_STEPS = 3
_FEWER, _MORE = 1e-2, 1e6
_SHARE = 6  # of the batch: a sixth of the samples allows six times the steps
_LEARNING_STEPS = 36
_RATES = (1e-2, 1e-3)


def read_the_learning_rates(setup: TrainingSetup) -> LearningRates:
    """Read the rates of the groups that hold a trainable parameter, without a step."""
    groups = [group for optimizer in setup.optimizers for group in optimizer.param_groups]
    groups = [group for group in groups if any(parameter.requires_grad for parameter in group["params"])]
    if not groups:
        raise NotExamined("The optimizer holds no trainable parameter: see DK103.")
    rates = tuple(float(group["lr"]) for group in groups if "lr" in group)
    if not rates:
        raise NotExamined("The optimizer has no learning rate.")
    scheduled = any(float(group.get("initial_lr", 0.0)) > 0 for group in groups)
    return LearningRates(rates, scheduled, built_at(setup.optimizers[0], setup))


def try_the_learning_rate(setup: TrainingSetup) -> LearningRateTrial:
    """Three steps at the optimizer's own rate, and three at another one if the loss does not fall."""
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in setup.optimizers):
        raise NotExamined("LBFGS chooses its own step size, so there is no learning rate to try.")
    if not any(read_the_learning_rates(setup).rates):
        raise NotExamined("Every learning rate is zero.")
    own = RateTrial(1.0, _with_rates(setup, 1.0))
    factor = _FEWER if _rises(own.losses) else _MORE
    fell = own.losses[-1] < own.losses[0] - 1e-4 * abs(own.losses[0])
    other = None if fell and not _rises(own.losses) else RateTrial(factor, _with_rates(setup, factor))
    return LearningRateTrial(own, other)


def learn_a_few_samples(setup: TrainingSetup) -> OneBatchTraining:
    """Thirty-six steps of Adam at each of two rates on a sixth of the batch, two samples at least."""
    size = batch_size(setup.batch)
    if size is None or size < 2:
        raise NotExamined("The batch has fewer than two samples.")
    parameters = [parameter for parameter in setup.model.parameters() if parameter.requires_grad]
    if not parameters:
        raise NotExamined("No parameter has requires_grad=True, so nothing can be learnt.")
    if any(getattr(module, "sparse", False) for module in setup.model.modules()):
        raise NotExamined("An embedding has sparse gradients, which Adam does not support.")
    few = max(2, size // _SHARE)
    batch = map_tensors(setup.batch, lambda _, tensor: tensor[:few] if tensor.shape[:1] == (size,) else tensor)
    curves = []
    for rate in _RATES:
        with preserved(setup):
            adam = torch.optim.Adam(parameters, lr=rate)
            curves.append((rate, _train(setup, batch, [adam], _LEARNING_STEPS)))
    rate, losses = min(curves, key=lambda curve: curve[1][-1] if math.isfinite(curve[1][-1]) else math.inf)
    return OneBatchTraining(few, rate, losses)


def _with_rates(setup: TrainingSetup, factor: float) -> tuple[float, ...]:
    with preserved(setup):
        for optimizer in setup.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * factor
        return _train(setup, setup.batch, setup.optimizers, _STEPS)


def _train(setup: TrainingSetup, batch: Any, optimizers: Sequence[Optimizer], steps: int) -> tuple[float, ...]:
    """The loss before each step and after the last one. It ends early if the loss is not finite."""
    losses: list[float] = []
    compute: Callable[[], torch.Tensor] = lambda: setup.loss(clone_tensors(batch))  # noqa: E731 - one expression
    for _ in range(steps):
        with same_randomness(0):
            loss = compute()
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]) or not loss.requires_grad:
            return tuple(losses)
        for parameter in setup.model.parameters():
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
    with torch.no_grad(), same_randomness(0):
        losses.append(float(compute()))
    return tuple(losses)


def _rises(losses: Sequence[float]) -> bool:
    return not math.isfinite(losses[-1]) or losses[-1] > losses[0]

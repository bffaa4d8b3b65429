"""The class ids that the loss of the setup's batch learns, and the ids that the model looks up."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

from debugkit.finding import SourceLine
from debugkit.preserve_state import same_start
from debugkit.randomness import same_randomness
from debugkit.recorders.token_calls import ClassLoss, Lookup, TokenCalls
from debugkit.setup import TrainingSetup

SEED = 0
_LEARNT: weakref.WeakKeyDictionary[TrainingSetup, Learnt] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class LearntTargets:
    """The targets of one class loss on which the loss of the step depends."""

    number: int
    """Among all class losses of the pass."""
    operation: str
    targets: Tensor
    """In any shape."""
    counts: Tensor
    """Which of them the loss depends on, in the same shape."""
    at: SourceLine | None


@dataclass(frozen=True, eq=False)
class Learnt:
    """Of one pass."""

    losses: tuple[LearntTargets, ...]
    lookups: tuple[Lookup, ...]
    random: frozenset[tuple[int, ...]]
    """Shapes of the floating-point tensors that were drawn at random."""


def learnt_targets(setup: TrainingSetup) -> Learnt:
    """One pass in eval mode. It runs only once, and all measurements share the result."""
    known = _LEARNT.get(setup)
    if known is None:
        setup.model.eval()
        known = _LEARNT[setup] = observed_targets(setup)
    return known


def observed_targets(setup: TrainingSetup) -> Learnt:
    """One pass in the present mode, and the gradient of the loss with respect to the result of each class loss.

    A target counts if the loss depends on its term: it is not the ignored index, its class has a weight, and no mask
    takes its term out afterwards.
    """
    with same_start(setup), TokenCalls() as calls, torch.enable_grad(), same_randomness(SEED):
        loss = setup.loss()
    return Learnt(tuple(_counted(loss, calls.losses)), tuple(calls.lookups), frozenset(calls.random))


def _counted(loss: Tensor, calls: list[ClassLoss]) -> list[LearntTargets]:
    numbered = [(number, call) for number, call in enumerate(calls) if call.output.requires_grad]
    if not numbered or not loss.requires_grad:
        return []
    gradients = torch.autograd.grad(loss, [call.output for _, call in numbered], allow_unused=True)
    found = []
    for (number, call), gradient in zip(numbered, gradients, strict=True):
        if gradient is not None:
            reached = gradient.detach() != 0  # one number, or one of each target
            counts = call.counts & (reached if reached.ndim == 0 else reached.reshape(call.counts.shape))
            found.append(LearntTargets(number, call.operation, call.targets, counts, call.at))
    return found

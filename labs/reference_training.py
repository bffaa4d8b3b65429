"""The training step with which several labs compare a loop, and a policy for which its mode matters."""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.policy import Policy

MAX_GRADIENT_NORM = 1.0
_PolicyT = TypeVar("_PolicyT", bound=Policy)


def with_dropout(policy: _PolicyT, probability: float = 0.3) -> _PolicyT:
    """The policy, with dropout after its projector while the projector is in training mode."""
    policy.projector.register_forward_hook(lambda module, _, out: F.dropout(out, probability, module.training))
    return policy


def train_step(policy: Policy, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]) -> float:
    """One step in training mode with clipped gradients, and its loss."""
    policy.train()
    optimizer.zero_grad()
    loss = policy(**batch).loss
    assert loss is not None
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
    optimizer.step()
    return loss.item()

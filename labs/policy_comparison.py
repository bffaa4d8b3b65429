"""What checks need to compare a submitted policy with the healthy one: a louder head, its input, and all gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from labs.grading import expect
from labs.invariants import TOLERANCE, close, listed
from labs.vla.policy import OBSERVATION_KEYS, Policy

NO_GRADIENT = 1e-5
"""Relative to the largest gradient. Smaller ones, such as that of a key's bias, are 0 except for rounding."""


def with_louder_head(policy: Policy, louder: float) -> Policy:
    """The policy in training mode, after its head's last layer was multiplied by `louder`."""
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(louder)
    return policy.train()


def encoded(policy: Policy, batch: Mapping[str, Tensor]) -> Tensor:
    """What a policy's head receives for a batch, (B, hidden)."""
    return policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})


def expect_gradients_of(policy: Policy, found: Mapping[str, Tensor], of: str, *, rtol: float = TOLERANCE) -> None:
    """`found`, by name, must be the gradients of a healthy policy after backward; `of` says of which batch they are."""
    gradients = {name: value.grad for name, value in policy.named_parameters() if value.grad is not None}
    expect(listed(gradients.keys() - found.keys()), "what has no gradient").equals("nothing")
    least = NO_GRADIENT * max(value.norm() for value in gradients.values())
    other = {
        name for name, value in gradients.items() if value.norm() > least and not close(found[name], value, rtol=rtol)
    }
    expect(listed(other), f"what has another gradient in a batch {of}").equals("nothing")

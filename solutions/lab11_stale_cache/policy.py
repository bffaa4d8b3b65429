"""Fine-tuning with a frozen vision tower, which is common when image features are cached or shared between skills.

    part                            trains
    vision                          no: its features of the training images are cached
    language_model.embed_tokens     no: words keep their pretrained meaning
    language_model.layers, .norm    yes
    projector, proprioception       yes
    head                            yes, from scratch

Notable choices
- The frozen parameters are named by shell-style patterns, `FROZEN`, so that a configuration file can hold them. A
  pattern without a match is a mistake in that file: it ends in a ValueError that quotes the pattern.
- A frozen parameter has `requires_grad=False`. Autograd then computes no gradient for it (`.grad` stays None), and an
  optimizer skips a parameter without a gradient, weight decay and momentum included.
- Freeze first, then build the optimizer: it gets only the trainable parameters.
- Weight decay applies to matrices, not to biases and the scales of norms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.policy import Policy

FROZEN = ("vision.*", "language_model.embed_tokens.*")
"""Patterns of the parameters that keep their pretrained values."""

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01
MAX_GRADIENT_NORM = 1.0


def freeze(policy: nn.Module, patterns: Iterable[str]) -> list[str]:
    """Freeze every parameter that one of the shell-style `patterns` matches, and return their names.

    Nothing else is changed; what is frozen already stays frozen. Raises ValueError.
    """
    parameters = dict(policy.named_parameters())
    frozen: list[str] = []
    for pattern in patterns:
        named = [name for name in parameters if fnmatchcase(name, pattern)]
        if not named:
            raise ValueError(f"No parameter is called {pattern}, so nothing would be frozen by it.")
        frozen += named
    for name in frozen:
        parameters[name].requires_grad_(False)
    return frozen


def parameter_groups(policy: nn.Module) -> list[dict[str, Any]]:
    """The trainable parameters, in two groups: matrices (dim 2 and above) with weight decay, the rest without."""
    trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [parameter for parameter in trained if parameter.ndim < 2], "weight_decay": 0.0},
    ]


def build_policy(seed: int) -> Policy:
    """The pretrained base with a head drawn from `seed`, frozen according to `FROZEN`."""
    policy = Policy.from_base(seed=seed)
    freeze(policy, FROZEN)
    return policy


def build_optimizer(policy: Policy) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters only."""
    return torch.optim.AdamW(parameter_groups(policy), lr=LEARNING_RATE, betas=(0.9, 0.95))


def train_step(policy: Policy, optimizer: torch.optim.Optimizer, batch: Mapping[str, Tensor]) -> float:
    """One update on a batch of demonstrations, in training mode; returns the loss before it."""
    policy.train()
    optimizer.zero_grad()
    loss = policy(**batch).loss
    loss.backward()
    nn.utils.clip_grad_norm_([p for p in policy.parameters() if p.requires_grad], MAX_GRADIENT_NORM)
    optimizer.step()
    return float(loss.detach())


def describe(policy: nn.Module) -> str:
    """How much of the policy trains, in one line for the log of a run."""
    total = sum(parameter.numel() for parameter in policy.parameters())
    trained = sum(parameter.numel() for parameter in policy.parameters() if parameter.requires_grad)
    return f"{trained:,} of {total:,} numbers train ({trained / total:.0%})"

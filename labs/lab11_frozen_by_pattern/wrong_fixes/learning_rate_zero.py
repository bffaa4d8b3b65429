# refused_by: test_trainable_set_is_exact
# why: A learning rate of zero is no freezing: the gradient is still computed and still clips the others.
"""Fine-tuning on a frozen vision tower, as one does when image features are cached or shared between skills.

    part                            trains
    vision                          no: its features of the training pictures are cached
    language_model.embed_tokens     no: words keep the meaning they were pretrained with
    language_model.layers, .norm    yes
    projector, proprioception       yes
    head                            yes, and from scratch

Notable choices
- What stays is named by shell-style patterns, `FROZEN`, so that a configuration file can hold them.
- A frozen parameter has `requires_grad=False`. Autograd then computes no gradient for it (`.grad` stays None), and an
  optimizer leaves a parameter without a gradient alone, weight decay and momentum included.
- Freeze first, then build the optimizer: it is given only what trains.
- Matrices are decayed, biases and the scales of norms are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.policy import Policy

FROZEN = ("vision.vision_model.*", "language_model.embed_tokens.*")
"""Patterns of what keeps its pretrained values: the whole vision tower, and the token embeddings."""

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01
MAX_GRADIENT_NORM = 1.0


def freeze(policy: nn.Module, patterns: Iterable[str]) -> list[str]:
    """Freeze every parameter that one of the shell-style `patterns` names, and return their names.

    Nothing else is changed. Raises ValueError for a pattern that names no parameter: whoever wrote it meant one.
    """
    parameters = dict(policy.named_parameters())
    frozen: list[str] = []
    for pattern in patterns:
        frozen += [name for name in parameters if fnmatchcase(name, pattern)]
    if not frozen:
        raise ValueError(f"No parameter is called like one of {', '.join(patterns)}: nothing would be frozen.")
    for name in frozen:
        parameters[name].requires_grad_(False)
    return frozen


def parameter_groups(policy: nn.Module) -> list[dict[str, Any]]:
    """What trains, in two groups: matrices (dim 2 and above) with weight decay, vectors without."""
    tower = list(policy.vision.parameters())
    own = {id(parameter) for parameter in tower}
    trained = [parameter for parameter in policy.parameters() if parameter.requires_grad and id(parameter) not in own]
    return [
        {"params": tower, "lr": 0.0},
        {"params": [parameter for parameter in trained if parameter.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [parameter for parameter in trained if parameter.ndim < 2], "weight_decay": 0.0},
    ]


def build_policy(seed: int) -> Policy:
    """The pretrained base with a head drawn from `seed`, frozen as `FROZEN` says."""
    policy = Policy.from_base(seed=seed)
    freeze(policy, FROZEN)
    return policy


def build_optimizer(policy: Policy) -> torch.optim.Optimizer:
    """AdamW over everything that trains, and nothing else."""
    return torch.optim.AdamW(parameter_groups(policy), lr=LEARNING_RATE, betas=(0.9, 0.95))


def train_step(policy: Policy, optimizer: torch.optim.Optimizer, batch: Mapping[str, Tensor]) -> float:
    """One update on a batch of demonstrations; returns the loss before it."""
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

"""Fine-tuning in two phases: first the new head alone, then the whole policy.

    phase      steps                  trained
    head       the first HEAD_STEPS   the action head
    whole      all others             everything

A newly initialised head sends noisy gradients into the pretrained parts. So the head is first trained on fixed
features ("linear probing, then fine-tuning", arXiv:2202.10054), and only then may its gradient change the rest.

Notable choices
- In the first phase the features are computed without a graph, so a step costs about a third of a step of the second.
- One optimizer serves both phases: it skips parameters without a gradient, and the head keeps its momentum.
- Nothing is clipped. The gradient norm is logged instead; with a bound of infinity `clip_grad_norm_` measures it and
  changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labs.vla.policy import OBSERVATION_KEYS, Policy

HEAD_STEPS = 40
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01


@dataclass(frozen=True)
class LogLine:
    """The log of one step: the loss before it, and the norm of the gradient it used."""

    step: int
    phase: str
    loss: float
    gradient_norm: float

    def __str__(self) -> str:
        return f"{self.step:6d}  {self.phase:<5}  {self.loss:7.3f}  {self.gradient_norm:8.2f}"


def build_policy(seed: int) -> Policy:
    """The pretrained base with a head initialised from `seed`."""
    return Policy.from_base(seed=seed)


def build_optimizer(policy: Policy) -> torch.optim.Optimizer:
    """AdamW over the whole policy."""
    return torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)


def head_loss(policy: Policy, batch: Mapping[str, Tensor]) -> Tensor:
    """The training loss on features without a graph, so that its gradient stops at the head."""
    with torch.no_grad():
        feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})  # (B, D)
    return policy.loss(feature, batch["action"], batch["action_is_pad"])


def train(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    stream: Iterable[Mapping[str, Tensor]],
    head_steps: int = HEAD_STEPS,
) -> list[LogLine]:
    """Train on each batch of `stream` in turn, and return a log line for each.

    Each step uses only the gradient of its own batch, at the current weights. The first `head_steps` steps change the
    head, later steps change everything. The policy trains in training mode and is left in evaluation mode.
    """
    policy.train()
    log: list[LogLine] = []
    for step, batch in enumerate(stream):
        if step < head_steps:
            phase = "head"
            optimizer.zero_grad()
            loss = head_loss(policy, batch)
        else:
            phase = "whole"
            loss = policy(**batch).loss
        loss.backward()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), math.inf)
        optimizer.step()
        log.append(LogLine(step, phase, float(loss.detach()), float(norm)))
    policy.eval()
    return log

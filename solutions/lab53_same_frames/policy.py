"""Training with accumulated gradients: an update from 32 frames on a machine whose memory holds eight.

    batch (32 frames) ── split ── micro-batches ── forward, backward, one after another ── .grad adds up ── one update

A frame's target is a chunk of one to four steps. Near the end of an episode there are fewer steps: the rest of the
chunk is padding and does not count in the loss.

Notable choices
- The update is that of the whole batch. The number of micro-batches depends on the available memory, and changes only
  the order in which numbers are added.
- Frames with similar numbers of steps go into one micro-batch, as in length grouping for sentences, so that a
  micro-batch contains little padding.
- Only one micro-batch has a graph in memory at a time.
- Gradients are clipped once, when they are complete.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from labs.vla.dataset import Batch
from labs.vla.policy import Policy

MAX_GRADIENT_NORM = 1.0


def training_step(policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch, micro_batches: int) -> float:
    """One update from a batch that is processed in `micro_batches` parts, in the policy's mode; returns its loss."""
    optimizer.zero_grad()
    loss = accumulate(policy, split(batch, micro_batches))
    nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
    optimizer.step()
    return loss


def accumulate(policy: Policy, window: Sequence[Batch]) -> float:
    """Put the gradient of the window's loss into `.grad`, which must be None before, and return that loss.

    The window's loss is the policy's loss for all of its frames in one batch.
    """
    total = 0.0
    for micro_batch in window:
        share = loss_share(policy, micro_batch, window)
        share.backward()
        total += share.item()
    return total


def loss_share(policy: Policy, micro_batch: Batch, window: Sequence[Batch]) -> torch.Tensor:
    """What is backpropagated for one micro-batch of the window, a scalar."""
    loss = policy(**micro_batch).loss
    steps = sum(int(steps_of(other).sum()) for other in window)
    return loss * steps_of(micro_batch).sum() / steps


def split(batch: Batch, parts: int) -> list[Batch]:
    """The batch's frames in `parts` micro-batches, sorted by their number of steps; every frame once."""
    order = steps_of(batch).argsort(stable=True)
    return [{name: values[rows] for name, values in batch.items()} for rows in order.tensor_split(parts)]


def steps_of(batch: Batch) -> torch.Tensor:
    """How many steps of each frame's chunk are not padding, (B,)."""
    return (~batch["action_is_pad"]).sum(dim=1)


def build_policy(seed: int) -> Policy:
    """The pretrained base with a newly initialised regression head."""
    return Policy.from_base(seed=seed)


def build_optimizer(policy: Policy) -> torch.optim.Optimizer:
    """AdamW over the whole policy."""
    return torch.optim.AdamW(policy.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)

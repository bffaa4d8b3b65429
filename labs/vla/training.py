"""Behaviour cloning: AdamW, warm-up and cosine schedule, clipped gradients. `overfit` is the same on one batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from labs.vla.dataset import Batch, Frames, batches
from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness

LossFn = Callable[[Policy, Batch], Tensor]
OnStep = Callable[[int, float], None]

WARM_UP_STEPS = 20
FINAL_LEARNING_RATE = 0.05
"""Learning rate at the last step, as a fraction of the peak."""
MAX_GRADIENT_NORM = 1.0


def fit(
    policy: Policy,
    frames: Frames,
    *,
    steps: int,
    seed: int,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    loss_fn: LossFn | None = None,
    on_step: OnStep | None = None,
) -> list[float]:
    """Train `policy` in place for `steps` batches of `frames`, and return every step's loss.

    `seed` determines the batches and, for heads that need it, the noise; the caller's random state does not change.
    `loss_fn` is `policy(**batch).loss` by default; `on_step(step, loss)` is called after each update. Results are
    bit-identical for a fixed number of threads. Leaves the policy in evaluation mode.
    """
    with private_randomness(seed):
        return _train(policy, batches(frames, batch_size, steps, seed), steps, learning_rate, loss_fn, on_step)


def overfit(policy: Policy, batch: Batch, steps: int, learning_rate: float = 1e-3, seed: int = 0) -> list[float]:
    """Train repeatedly on one batch: a policy that cannot fit it has a bug, not too little data."""
    with private_randomness(seed):
        return _train(policy, (batch for _ in range(steps)), steps, learning_rate, None, None)


def learning_rate_at(step: int, steps: int, peak: float) -> float:
    """Linear warm-up over 20 steps, and a cosine down to 5 % of the peak."""
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return peak * warm_up * (FINAL_LEARNING_RATE + (1 - FINAL_LEARNING_RATE) * cosine)


def _train(
    policy: Policy,
    stream: Iterable[Batch],
    steps: int,
    learning_rate: float,
    loss_fn: LossFn | None,
    on_step: OnStep | None,
) -> list[float]:
    loss_fn = loss_fn or _own_loss
    trainable = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    losses = []
    policy.train()
    for step, batch in enumerate(stream):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, steps, learning_rate)
        loss = loss_fn(policy, to_device(batch, policy.device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trainable, MAX_GRADIENT_NORM)
        optimizer.step()
        losses.append(loss.item())
        if on_step is not None:
            on_step(step, losses[-1])
    policy.eval()
    return losses


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Move every tensor of a batch."""
    return {name: tensor.to(device) for name, tensor in batch.items()}


def _own_loss(policy: Policy, batch: Batch) -> Tensor:
    loss = policy(**batch).loss
    if loss is None:
        raise ValueError("The batch has no 'action', so the policy returned no loss. Was a column dropped on the way?")
    return loss

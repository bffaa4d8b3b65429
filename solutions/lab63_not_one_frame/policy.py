"""A training step that adapts to the available memory.

    batch ── 64 frames in one go? ── out of memory ── 2 × 32? ── out of memory ── 4 × 16 ── one update

Notable choices
- You do not need to know how large a batch may be: the step tries the whole batch and halves its micro-batch until it
  runs. The same script works on the laptop, the workstation and the cluster.
- Whatever the micro-batch size, the update is that of the whole batch: each part's loss, a mean over its steps, is
  weighted by the part's share of all steps.
- If not even one frame fits, the error lists each size that was tried and why it failed, for use in a bug report.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labs.vla.dataset import Batch
from labs.vla.policy import Policy


def training_step(policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """One update from a batch, in micro-batches that fit: the batch's size, halved as often as necessary.

    Returns the batch's loss. Raises torch.OutOfMemoryError, without an update, if a single frame does not fit.
    """
    size, failures = len(batch["state"]), []
    while size >= 1:
        try:
            loss = accumulate(policy, batch, size)
        except torch.OutOfMemoryError as error:
            failures.append((size, str(error)))  # not the error: its traceback holds the activations
            size //= 2
        else:
            optimizer.step()
            return loss
    tried = "\n".join(f"  in micro-batches of {tried}: {reason}" for tried, reason in failures)
    raise torch.OutOfMemoryError(f"Not even one frame fits. Tried:\n{tried}")


def accumulate(policy: Policy, batch: Batch, size: int) -> float:
    """Set `.grad` to the gradient of the batch's loss, from micro-batches of `size` frames; returns that loss."""
    policy.zero_grad(set_to_none=True)  # also removes the gradients of a failed attempt
    total, steps = 0.0, steps_of(batch)
    for start in range(0, len(batch["state"]), size):
        part = {name: values[start : start + size] for name, values in batch.items()}
        share = policy(**part).loss * steps_of(part) / steps
        share.backward()
        total += share.item()
    return total


def steps_of(batch: Batch) -> Tensor:
    """The number of steps in the batch's chunks that are not padding, but at least one."""
    return (~batch["action_is_pad"]).sum().clamp(min=1)


def build_policy(seed: int) -> Policy:
    """The pretrained base with a newly initialised regression head."""
    return Policy.from_base(seed=seed)


def build_optimizer(policy: Policy) -> torch.optim.Optimizer:
    """AdamW over the whole policy."""
    return torch.optim.AdamW(policy.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)

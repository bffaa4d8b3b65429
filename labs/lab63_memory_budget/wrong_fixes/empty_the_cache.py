# refused_by: test_the_step_fits
# why: Empties the cache; what a live exception holds is not in the cache.
"""A training step that fits itself into the memory there is.

    batch ── 64 frames in one go? ── out of memory ── 2 × 32? ── out of memory ── 4 × 16 ── one update

Notable choices
- Nobody has to know how large a batch may be: the step tries the whole batch and halves its micro-batch until it runs.
  The same script serves the laptop, the workstation and the cluster.
- Whatever the micro-batch, the update is that of the whole batch: each part's loss, a mean over its steps, counts by
  its share of all steps.
- If not even one frame fits, the error says what was tried, size by size: that is what goes into the bug report.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labs.vla.dataset import Batch
from labs.vla.policy import Policy


def training_step(policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """One update from a batch, in micro-batches as large as fit: its size, or that halved, once or several times.

    Returns the batch's loss. Raises torch.OutOfMemoryError if a single frame does not fit; nothing is updated then.
    """
    size, failures = len(batch["state"]), []
    while size >= 1:
        try:
            loss = accumulate(policy, batch, size)
        except torch.OutOfMemoryError as error:
            failures.append((size, error))
            size //= 2
            torch.cuda.empty_cache()
        else:
            optimizer.step()
            return loss
    tried = "\n".join(f"  in micro-batches of {tried}: {reason}" for tried, reason in failures)
    raise torch.OutOfMemoryError(f"Not even one frame fits. Tried:\n{tried}")


def accumulate(policy: Policy, batch: Batch, size: int) -> float:
    """Make `.grad` the gradient of the batch's loss, from micro-batches of `size` frames; returns that loss."""
    policy.zero_grad(set_to_none=True)  # also what a failed attempt has left
    total, steps = 0.0, steps_of(batch)
    for start in range(0, len(batch["state"]), size):
        part = {name: values[start : start + size] for name, values in batch.items()}
        share = policy(**part).loss * steps_of(part) / steps
        share.backward()
        total += share.item()
    return total


def steps_of(batch: Batch) -> Tensor:
    """How many steps of the batch's chunks are not padding, at least one."""
    return (~batch["action_is_pad"]).sum().clamp(min=1)


def build_policy(seed: int) -> Policy:
    """The pretrained base with a fresh regression head."""
    return Policy.from_base(seed=seed)


def build_optimizer(policy: Policy) -> torch.optim.Optimizer:
    """AdamW over everything."""
    return torch.optim.AdamW(policy.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)

"""One epoch of fine-tuning, with averages for the log.

The log shows averages over all frames seen, as a running value during the epoch and at its end:

    batch ── policy(**batch).loss ── backward ── step
                     └── Meter ── averages of loss, movement error and grip accuracy

What an epoch must guarantee
- Averages are over frames, not over batches: the last batch of an epoch is often smaller.
- From the second step on, the same tensors and graphs are alive after every step, because an epoch can have any number
  of steps.
- The weights are those that a loop without logging would reach.

Notable choice
- Movement error and grip accuracy come from a separate prediction in evaluation mode, at the first step and at every
  tenth step after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from labs.vla.dataset import Batch
from labs.vla.policy import Policy

MAX_GRADIENT_NORM = 1.0
METRICS_EVERY = 10
OnStep = Callable[[int, dict[str, float]], None]


class Meter:
    """Averages of named quantities over the frames on which they were computed."""

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._frames: dict[str, int] = {}

    def update(self, values: Mapping[str, Tensor], frames: int) -> None:
        """Add `values`: scalars, each a mean over `frames` frames. They and their graphs stay as they are."""
        for name, value in values.items():
            self._totals[name] = self._totals.get(name, 0.0) + value * frames
            self._frames[name] = self._frames.get(name, 0) + frames

    def averages(self) -> dict[str, float]:
        """The average of each quantity so far, a Python number."""
        return {name: float(total.detach()) / self._frames[name] for name, total in self._totals.items()}


def train_epoch(
    policy: Policy, stream: Iterable[Batch], optimizer: torch.optim.Optimizer, on_step: OnStep | None = None
) -> dict[str, float]:
    """Train on each batch of `stream` once; returns the epoch's averages: loss, movement_error, grip_accuracy.

    `on_step(step, averages so far)` is called after each step, with a new dictionary each time; steps are counted from
    0. Leaves the policy in evaluation mode.
    """
    meter = Meter()
    for step, batch in enumerate(stream):
        policy.train()
        optimizer.zero_grad()
        loss = policy(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        meter.update({"loss": loss}, frames=len(batch["state"]))
        if step % METRICS_EVERY == 0:
            meter.update(metrics(policy, batch), frames=len(batch["state"]))
        if on_step is not None:
            on_step(step, meter.averages())
    policy.eval()
    return meter.averages()


@torch.no_grad()
def metrics(policy: Policy, batch: Batch) -> dict[str, Tensor]:
    """Errors of the first action of each chunk: the mean distance in metres, and the fraction of correct grips."""
    policy.eval()
    predicted, target = policy.predict(batch)[:, 0], batch["action"][:, 0]  # (B, A)
    return {
        "movement_error": (predicted[:, :2] - target[:, :2]).norm(dim=-1).mean(),
        "grip_accuracy": ((predicted[:, 2] > 0) == (target[:, 2] > 0)).float().mean(),
    }

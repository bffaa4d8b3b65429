"""Fine-tuning in mixed precision: float16 where it is fast, float32 where it is needed, and clipped gradients.

Under autocast the large matrix products run in float16, whose smallest number is 6e-8 and whose largest 65,504.
Gradients are small numbers, so the loss is multiplied before the backward pass and the gradients are divided after it,
by a factor that `GradScaler` manages:

    loss ── × scale ── backward (float16 inside) ── gradients (float32) ── ÷ scale ── SGD step

What one training step guarantees
- The weights move exactly as in float32, up to float16's rounding: by the learning rate times the gradient, or, if the
  gradient is longer than MAX_GRADIENT_NORM, times the gradient shortened to that length.
- That holds for any scale. The scaler halves it when a gradient overflows, and doubles it after many steps without one.
- A step whose gradient overflowed does not change the weights.
- The reported norm is the gradient's, before clipping, in the units of MAX_GRADIENT_NORM.

Notable choices
- Weights and optimizer state stay in float32; autocast converts what it needs.
- SGD with momentum, as for the vision towers that this recipe comes from.
- The same code runs on a GPU: `device_type` is the policy's. On a CPU it is slower than float32, and its results are
  those of a GPU up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.amp import GradScaler

from labs.vla.dataset import Batch
from labs.vla.policy import Policy

LEARNING_RATE, MOMENTUM = 0.1, 0.9
MAX_GRADIENT_NORM = 0.3
INITIAL_SCALE = 2.0**16
"""GradScaler's own default."""


@dataclass(frozen=True)
class Step:
    """What one training step reports to the log."""

    loss: float
    gradient_norm: float
    """Of all gradients together, before clipping."""
    scale: float
    """The loss scale with which this step was computed."""
    skipped: bool
    """Whether the gradient overflowed, so that the weights were not changed."""


OnStep = Callable[[int, Step], None]


def build_optimizer(policy: Policy) -> torch.optim.SGD:
    """SGD over all trainable parameters."""
    trainable = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    return torch.optim.SGD(trainable, lr=LEARNING_RATE, momentum=MOMENTUM)


def build_scaler(policy: Policy, scale: float = INITIAL_SCALE) -> GradScaler:
    """The loss scaler for the device that the policy is on."""
    return GradScaler(policy.device.type, init_scale=scale)


def training_step(policy: Policy, batch: Batch, optimizer: torch.optim.Optimizer, scaler: GradScaler) -> Step:
    """Train on one batch, in the policy's current mode: forward in mixed precision, scaled backward, clip, step."""
    scale = scaler.get_scale()
    optimizer.zero_grad()
    with torch.autocast(policy.device.type, dtype=torch.float16):
        loss = policy(**batch).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
    scaler.step(optimizer)
    scaler.update()
    return Step(loss.item(), norm.item(), scale, skipped=scaler.get_scale() < scale)


def train(policy: Policy, stream: Iterable[Batch], on_step: OnStep | None = None) -> list[Step]:
    """Fine-tune `policy` in place on each batch of `stream`; leaves it in evaluation mode."""
    optimizer, scaler = build_optimizer(policy), build_scaler(policy)
    steps = []
    policy.train()
    for index, batch in enumerate(stream):
        steps.append(training_step(policy, batch, optimizer, scaler))
        if on_step is not None:
            on_step(index, steps[-1])
    policy.eval()
    return steps

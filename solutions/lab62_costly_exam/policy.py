"""Fine-tuning with a validation on held-out frames every few steps: the loss curve, and the error along the chunk.

    train 10 steps ── validate ── train 10 steps ── validate ── …
                         │
                         └── Validation: loss, error of every held-out frame at every step of its chunk

Notable choices
- The policy is validated in evaluation mode, and its modes are restored afterwards: parts that were in evaluation mode
  on purpose stay in it, and all others return to training mode.
- Nothing is learnt from a validation, so each call of `validate` needs far less memory than a training step on the same
  frames, and leaves only its numbers behind.
- Every validation is kept: over the course of training, the error along the chunk distinguishes a policy that has not
  learnt yet from one that has learnt only the first step.
- The error is a distance on the table in metres, for the movement only. Padded steps count neither in the loss nor in
  the mean error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.dataset import Batch, Frames, batches
from labs.vla.heads import mean_over_steps
from labs.vla.policy import OBSERVATION_KEYS, Policy

LEARNING_RATE = 1e-3
MAX_GRADIENT_NORM = 1.0
VALIDATE_EVERY = 10


@dataclass
class Validation:
    """The result of one validation: the mean loss, a scalar, and the error of each step in metres, (N, H)."""

    loss: Tensor
    error: Tensor
    valid: Tensor  # (N, H), False where a step is padding

    def along_the_chunk(self) -> Tensor:
        """The mean error at each step of the chunk, in metres, (H,); NaN at a step that is padding in every frame."""
        return (self.error * self.valid).sum(dim=0) / self.valid.sum(dim=0)


@dataclass
class Run:
    """The record of a training run: the loss of every step, and every validation."""

    losses: list[float] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)


class ChunkPolicy(Policy):
    """The base policy with a method that returns the predicted actions and their losses from one pass."""

    def act_and_score(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The predicted chunk (B, H, A) in environment units, and the loss of each of its steps, (B, H)."""
        feature = self.encode(**{name: batch[name] for name in OBSERVATION_KEYS})  # (B, D)
        predicted = self.head.predict(feature)  # (B, H, A), normalised
        target = self.action_statistics.normalize(batch["action"])
        error = F.smooth_l1_loss(predicted, target, beta=0.1, reduction="none")  # (B, H, A)
        return self.action_statistics.unnormalize(predicted), error.mean(dim=-1)


@torch.no_grad()
def validate(policy: ChunkPolicy, held_out: Iterable[Batch]) -> Validation:
    """Loss and error on held-out batches.

    Afterwards the policy and torch are as they were: every module's mode, every parameter, its gradient and its
    `requires_grad`, and whether gradients are enabled.
    """
    modes = {module: module.training for module in policy.modules()}
    policy.eval()
    losses, errors, valid = [], [], []
    for batch in held_out:
        action, loss = policy.act_and_score(batch)
        losses.append(loss)
        errors.append((action - batch["action"])[..., :2].norm(dim=-1))  # (B, H)
        valid.append(~batch["action_is_pad"])
    for module, mode in modes.items():
        module.training = mode
    mean = mean_over_steps(torch.cat(losses), ~torch.cat(valid))
    return Validation(mean, torch.cat(errors), torch.cat(valid))


def build_policy(seed: int) -> ChunkPolicy:
    """The pretrained base with a new head initialised from `seed`."""
    return ChunkPolicy.from_base(seed=seed)


def train(policy: ChunkPolicy, frames: Frames, held_out: list[Batch], *, steps: int, batch_size: int, seed: int) -> Run:
    """Fine-tune `policy` in place for `steps` batches, validating every ten steps and at the end."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE)
    run = Run()
    policy.train()
    for step, batch in enumerate(batches(frames, batch_size, steps, seed)):
        optimizer.zero_grad()
        loss = policy(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        run.losses.append(loss.item())
        if (step + 1) % VALIDATE_EVERY == 0 or step + 1 == steps:
            run.validations.append(validate(policy, held_out))
    return run

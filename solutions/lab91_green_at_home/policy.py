"""A policy trained with Lightning: the framework provides the loop, this file what happens in a step.

The loss treats the error of a chunk as a motion. Two chunks can be equally far from the expert's, one with a constant
offset and one shaking around it; only the second is bad for the arm. So the error is decomposed into cosine waves along
the chunk, from the slow one (where the arm goes) to the fast ones (how it shakes), and a faster wave costs more:

    batch ── policy ── (B, H, A) ── minus the expert ── times importance ── cosine waves ── square, mean ── loss

Notable choices
- The policy inside is the unchanged base policy: `module.policy` is what runs on the robot, and predicts as before.
- The robot executes the first actions of a chunk and then plans again, so later steps are less important.
- Waves and importance follow from the horizon. They are not trained and need not be saved in a checkpoint.
- The code names no device and no precision. Choosing them is the framework's job.
"""

from __future__ import annotations

import math
from typing import Any

import lightning
import torch
from torch import Tensor

from labs.vla.policy import OBSERVATION_KEYS, Policy
from labs.vla.training import learning_rate_at

LEARNING_RATE = 1e-3
SHAKING = 0.5
"""The weight that each faster wave adds to that of the slowest."""
LATER = 0.9
"""The weight of each step of the chunk, relative to the step before."""


class MotionModule(lightning.LightningModule):
    """Trains `policy` on the error of its motion; takes batches of `labs.vla.dataset`."""

    importance: Tensor
    waves: Tensor

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        horizon = policy.config.horizon
        self.register_buffer("importance", LATER ** torch.arange(horizon), persistent=False)  # (H,)
        self.register_buffer("waves", cosine_waves(horizon), persistent=False)  # (H, H)

    def training_step(self, batch: dict[str, Tensor]) -> Tensor:
        """The loss on which Lightning calls backward."""
        loss = self.motion_loss(batch)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor]) -> None:
        """The same loss on held-out frames."""
        self.log("validation_loss", self.motion_loss(batch), prog_bar=True)

    def predict_step(self, batch: dict[str, Tensor]) -> Tensor:
        """The chunk (B, H, A) in environment units."""
        return self.policy.predict(batch)

    def motion_loss(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean square of the error's waves, a scalar; padded steps count as zero error."""
        feature = self.policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})  # (B, D)
        predicted = self.policy.head(feature)  # (B, H, A), normalised
        target = self.policy.action_statistics.normalize(batch["action"]).to(predicted)
        is_step = ~batch["action_is_pad"][..., None]  # (B, H, 1)
        error = (predicted - target) * is_step * self.importance[:, None]
        spectrum = self.waves @ error  # (B, H, A)
        return spectrum.square().sum() / (is_step.sum() * error.shape[-1]).clamp(min=1)

    def configure_optimizers(self) -> dict[str, Any]:
        """AdamW, with warm-up and a cosine schedule over the trainer's estimated number of steps."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_at(step, steps, peak=1.0))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def cosine_waves(horizon: int) -> Tensor:
    """Cosine waves along a chunk, from slow to fast, one per row, each scaled by its weight: (H, H)."""
    wave, step = torch.arange(horizon)[:, None], torch.arange(horizon) + 0.5
    waves = torch.cos(math.pi / horizon * wave * step) * math.sqrt(2 / horizon)
    waves[0] /= math.sqrt(2)  # orthonormal: without the weights below, the decomposition preserves the squared error
    return waves * (1 + SHAKING * wave)


def build_module(seed: int) -> MotionModule:
    """The pretrained base policy with a new head initialised from `seed`, ready for `lightning.Trainer.fit`."""
    return MotionModule(Policy.from_base(seed=seed))

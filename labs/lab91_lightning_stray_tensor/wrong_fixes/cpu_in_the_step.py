# refused_by: test_runs_in_double_precision
# why: Brings the error back to the CPU in every step: the device fits, the dtype does not, and a GPU waits.
"""A policy that Lightning trains: the loop is the framework's, what happens in a step is ours.

The error of a chunk is judged as a motion. Two chunks can be equally far from the expert's, one of them beside it all
the way and one trembling around it; the arm minds only the second. So the error is taken apart into cosine waves along
the chunk, from the slow one (where the arm goes) to the fast ones (how it shakes), and a faster wave costs more:

    batch ── policy ── (B, H, A) ── minus the expert ── times importance ── cosine waves ── square, mean ── loss

Notable choices
- The policy inside is the base policy, untouched: `module.policy` is what goes on the robot, and predicts as ever.
- The robot carries out the first actions of a chunk and plans anew, so later steps are less important.
- Waves and importance follow from the horizon. They do not train, and nothing about them needs to be in a checkpoint.
- No device and no precision is named anywhere. That is what one has a framework for.
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
"""How much more each faster wave counts than the one before."""
LATER = 0.9
"""How much less each step of the chunk counts than the one before."""


class MotionModule(lightning.LightningModule):
    """Trains `policy` by the error of its motion; batches are those of `labs.vla.dataset`."""

    importance: Tensor
    waves: Tensor

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        horizon = policy.config.horizon
        self.register_buffer("importance", LATER ** torch.arange(horizon), persistent=False)  # (H,)
        self.waves = cosine_waves(horizon)  # (H, H)

    def training_step(self, batch: dict[str, Tensor]) -> Tensor:
        """The loss that Lightning takes backward."""
        loss = self.motion_loss(batch)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor]) -> None:
        """The same loss on frames that are not trained on."""
        self.log("validation_loss", self.motion_loss(batch), prog_bar=True)

    def predict_step(self, batch: dict[str, Tensor]) -> Tensor:
        """The chunk (B, H, A) in environment units."""
        return self.policy.predict(batch)

    def motion_loss(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean square of the error's waves, a scalar; steps after an episode's end have no error."""
        feature = self.policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})  # (B, D)
        predicted = self.policy.head(feature)  # (B, H, A), normalised
        target = self.policy.action_statistics.normalize(batch["action"])
        is_step = ~batch["action_is_pad"][..., None]  # (B, H, 1)
        error = (predicted - target) * is_step * self.importance[:, None]
        spectrum = self.waves @ error.cpu()  # (B, H, A)
        return spectrum.square().sum() / (is_step.sum() * error.shape[-1]).clamp(min=1)

    def configure_optimizers(self) -> dict[str, Any]:
        """AdamW, warm-up and a cosine over the steps that the trainer says there will be."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_at(step, steps, peak=1.0))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def cosine_waves(horizon: int) -> Tensor:
    """Cosine waves along a chunk, slow to fast, one a row, each scaled by what it counts: (H, H)."""
    wave, step = torch.arange(horizon)[:, None], torch.arange(horizon) + 0.5
    waves = torch.cos(math.pi / horizon * wave * step) * math.sqrt(2 / horizon)
    waves[0] /= math.sqrt(2)  # orthonormal: before it is scaled, taking apart loses nothing and doubles nothing
    return waves * (1 + SHAKING * wave)


def build_module(seed: int) -> MotionModule:
    """The pretrained base policy with a fresh head drawn from `seed`, ready for `lightning.Trainer.fit`."""
    return MotionModule(Policy.from_base(seed=seed))

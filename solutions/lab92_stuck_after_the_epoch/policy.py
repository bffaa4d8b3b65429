"""One policy for three robots, trained by Lightning in one process or in several.

The robots differ, and a mean over all frames hides a robot on which the policy is bad. So the validation loss is logged
for all frames and once more for each robot:

    batch ── policy ── (B, H, A) ── minus the expert ── square, mean ── (B,) ─┬─ mean ───────────── validation_loss
    robot (B,) ───────────────────────────────────────────────────────────────┴─ mean per robot ─── validation_loss/NAME

Notable choices
- The policy inside is the unchanged base policy. It is not told which robot it moves; only the metrics are.
- Each process validates on its own share of the held-out recordings. All processes have equally many batches, of any
  size.
- A validation metric is one number for the whole job: the mean over the frames of all processes, in which every frame
  counts alike. Callbacks run in every process, so every process needs that number. A frame whose loss is NaN is not
  left out: `validation_loss` is NaN then. A robot's metric depends on the frames of this robot alone.
- Training metrics are for watching a run. They cost nothing: no process waits for another to log them.
"""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor

from labs.vla.policy import OBSERVATION_KEYS, Policy
from labs.vla.training import learning_rate_at

ROBOTS = ("bench", "cart", "gantry")
"""The robot of a frame is the index of its name."""
LEARNING_RATE = 1e-3


class FleetModule(lightning.LightningModule):
    """Trains `policy` on batches of `labs.vla.dataset`; in validation, each also has a `robot` (B,) for every frame."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def training_step(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean loss of the batch; logged as `loss`, by every process the loss of its own batch."""
        loss = self.frame_losses(batch).mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def on_train_epoch_end(self) -> None:
        """Process 0 logs the `learning_rate`, which is the same in every process."""
        if self.trainer.is_global_zero:
            rate = self.optimizers().param_groups[0]["lr"]
            self.log("learning_rate", rate, rank_zero_only=True)

    def validation_step(self, batch: dict[str, Tensor]) -> None:
        """Log the mean loss of all frames, and of each robot's.

        A robot of which no process has a frame in this epoch has no number: NaN, or no entry.
        """
        losses = self.frame_losses(batch)
        self.log_mean("validation_loss", losses)
        for index, robot in enumerate(ROBOTS):
            own = losses[batch["robot"] == index]
            self.log_mean(f"validation_loss/{robot}", own)

    def log_mean(self, name: str, losses: Tensor) -> None:
        """Log the mean of all losses (N,) that are passed under this name during an epoch, by any process."""
        # Not an integer: Lightning 2.6 averages the weights of the processes, and rounds integers down.
        weight: Any = float(len(losses))
        self.log(name, losses.sum() / max(len(losses), 1), sync_dist=True, batch_size=weight)

    def frame_losses(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean squared error of each normalised chunk, (B,); padded steps do not count."""
        feature = self.policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})  # (B, D)
        target = self.policy.action_statistics.normalize(batch["action"])
        error = (self.policy.head(feature) - target).square().mean(dim=-1)  # (B, H)
        is_step = ~batch["action_is_pad"]
        return (error * is_step).sum(dim=1) / is_step.sum(dim=1).clamp(min=1)

    def predict_step(self, batch: dict[str, Tensor]) -> Tensor:
        """The chunk (B, H, A) in environment units."""
        return self.policy.predict(batch)

    def configure_optimizers(self) -> dict[str, Any]:
        """AdamW, with warm-up and a cosine schedule over the trainer's estimated number of steps."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_at(step, steps, peak=1.0))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def build_module(seed: int) -> FleetModule:
    """The pretrained base policy with a new head initialised from `seed`, ready for `lightning.Trainer.fit`."""
    return FleetModule(Policy.from_base(seed=seed))

"""A policy for a robot whose demonstrations were recorded by people.

The robot is the base's; the data set is not. A person moved the arm by hand, at a third of its maximum speed, so the
movements in the recordings are small, and the gripper closes in only one frame out of thirteen. The action statistics
of those recordings normalise the loss:

    feature (B, D) ── MLP ── normalised chunk (B, H, A) ── unnormalise ── actions in environment units (B, H, A)

What the head must provide
- It can predict every action that the robot can execute: any movement up to 10 cm in x and in y, open and closed.
- The loss is smallest where the prediction is the demonstrated action, in all three dimensions.
- The statistics, and the names and shapes of the parameters, stay what they are, so that training can continue from a
  checkpoint trained on the recordings.

Notable choices
- Smooth L1 on normalised actions over the steps that are part of the episode, as in the base.
- `predict` returns actions within the limits of the robot, whatever the head predicts.
- `learn_by_heart` is the first test of a new head, before any long run: a head that cannot learn sixteen frames will
  not learn a million.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.dataset import Batch, Frames
from labs.vla.heads import ActionHead, mean_over_steps
from labs.vla.normalization import ActionStatistics
from labs.vla.policy import Policy
from labs.vla.tabletop import ACTION_HIGH, ACTION_LOW
from labs.vla.training import fit, overfit

LEARNING_RATE = 2e-3
STEPS = 160
RECORDED_MEAN = (0.0, 0.0, -0.843)
RECORDED_STD = (0.026, 0.026, 0.538)
"""Metres, metres, gripper; computed over all frames of 300 recorded episodes."""


class RecordedHead(ActionHead):
    """Predicts the whole chunk at once by regression, in units of the recordings' standard deviation."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(horizon, action_dim)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, horizon * action_dim))

    def statistics(self) -> ActionStatistics:
        """The recordings' mean and standard deviation."""
        return ActionStatistics(RECORDED_MEAN, RECORDED_STD)

    def forward(self, feature: Tensor) -> Tensor:
        """The normalised chunk, (B, D) to (B, H, A)."""
        chunk = torch.tanh(self.mlp(feature))
        return chunk.unflatten(-1, (self.horizon, self.action_dim))

    def loss(self, feature: Tensor, target: Tensor, is_pad: Tensor) -> Tensor:
        """Smooth L1 between the chunk and `target` (B, H, A), over the steps that are not padding (B, H)."""
        error = F.smooth_l1_loss(self(feature), target, beta=0.1, reduction="none")  # (B, H, A)
        return mean_over_steps(error.mean(dim=-1), is_pad)

    def predict(self, feature: Tensor) -> Tensor:
        """The normalised chunk, (B, H, A)."""
        return self(feature)


class RecordedPolicy(Policy):
    """The base policy with a head for recorded actions; `policy(**batch).loss` trains it."""

    def build_head(self) -> ActionHead:
        return RecordedHead(self.config.width, self.config.horizon, self.config.action_dim)

    def decode(self, feature: Tensor) -> Tensor:
        """Actions in environment units and within the robot's limits, (B, D) to (B, H, A)."""
        low, high = (torch.from_numpy(limit).to(feature) for limit in (ACTION_LOW, ACTION_HIGH))  # (A,) both
        return super().decode(feature).clamp(low, high)


def learn_by_heart(policy: RecordedPolicy, batch: Batch, *, seed: int) -> list[float]:
    """Train repeatedly on one batch; returns every step's loss."""
    return overfit(policy, batch, STEPS, learning_rate=LEARNING_RATE, seed=seed)


def train(policy: RecordedPolicy, frames: Frames, *, steps: int, batch_size: int, seed: int) -> list[float]:
    """Fine-tune on demonstrations; returns every step's loss."""
    return fit(policy, frames, steps=steps, seed=seed, batch_size=batch_size, learning_rate=LEARNING_RATE)

"""A policy that predicts eight steps at once, with an L1 head as in ACT.

    feature (B, D) ─┐
    step (H, D) ────┴─ sum (B, H, D) ── MLP ── (B, H, A) ── L1 to the expert's steps

An episode ends when the gripper has closed, and a chunk of eight steps often reaches beyond that end: for an arm two
steps from its block, two steps are in the episode and six do not exist. The data repeats the last action there and
marks these steps in `action_is_pad`.

Notable choices
- Every step of the chunk has its own embedding and all steps share one MLP, so each step more costs D parameters.
- L1, not L2: demonstrations differ, and the mean of two good ways around an obstacle is not a good way.
- The loss is the mean absolute error per number of the steps that exist, in normalised units. It can be interpreted
  directly: 0.2 means an error of a fifth of a standard deviation, for any robot, any chunk and any data.
"""

from __future__ import annotations

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.heads import ActionHead
from labs.vla.policy import Policy, PolicyConfig

HORIZON = 8
"""Steps in a chunk."""


class ChunkHead(ActionHead):
    """All steps of a normalised chunk (B, H, A) from one feature (B, D)."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(horizon, action_dim)
        self.steps = nn.Embedding(horizon, width)
        nn.init.normal_(self.steps.weight, std=0.3)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, action_dim))

    def forward(self, feature: Tensor) -> Tensor:
        """The normalised chunk, (B, D) to (B, H, A)."""
        return self.mlp(feature[:, None] + self.steps.weight)

    def loss(self, feature: Tensor, target: Tensor, is_pad: Tensor) -> Tensor:
        """The loss, a scalar, for normalised targets (B, H, A): 0 if no step exists, NaN if an error that counts is."""
        error = F.l1_loss(self(feature), target, reduction="none")  # (B, H, A)
        exists = ~is_pad[..., None]  # (B, H, 1)
        return (error * exists).sum() / exists.expand_as(error).sum().clamp(min=1)

    def predict(self, feature: Tensor) -> Tensor:
        """The normalised chunk, (B, H, A)."""
        return self(feature)


class ChunkPolicy(Policy):
    """The base policy with a chunk of eight; `policy(**batch).loss` trains it, `predict` drives the robot."""

    def build_head(self) -> ChunkHead:
        return ChunkHead(self.config.width, self.config.horizon, self.config.action_dim)


def build_policy(seed: int) -> ChunkPolicy:
    """The pretrained base with a fresh head for eight steps, drawn from `seed`."""
    return ChunkPolicy.from_base(replace(PolicyConfig.tiny(), horizon=HORIZON), seed=seed)

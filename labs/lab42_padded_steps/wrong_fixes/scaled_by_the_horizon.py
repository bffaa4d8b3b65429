# refused_by: test_constant_error_is_the_loss
# why: The mean with the zeros, times a factor that is right on average, somewhere.
"""A policy that plans eight steps at once, with an L1 head in the manner of ACT.

    feature (B, D) ─┐
    step (H, D) ────┴─ sum (B, H, D) ── MLP ── (B, H, A) ── L1 to the expert's steps

An episode ends when the gripper has closed, and a chunk of eight steps often reaches beyond that end: an arm two steps
from its block has two steps to learn and six that do not exist. The data repeats the last action there, and says so in
`action_is_pad`.

Notable choices
- Every step of the chunk has an embedding of its own and shares one MLP, so a longer chunk costs H·D numbers more.
- L1, not L2: demonstrations hesitate, and a mean of two ways round is no way.
- The loss is the mean absolute error of a number of the chunk, in normalised units. It can be read: 0.2 means that the
  policy is off by a fifth of a standard deviation, for any robot, any chunk and any data.
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
        """Mean absolute error over the numbers of the steps that exist, a scalar; 0 where none does."""
        error = F.l1_loss(self(feature), target, reduction="none")  # (B, H, A)
        exists = ~is_pad[..., None]  # (B, H, 1)
        return 2 * (error * exists).mean()

    def predict(self, feature: Tensor) -> Tensor:
        """The normalised chunk, (B, H, A)."""
        return self(feature)


class ChunkPolicy(Policy):
    """The base policy with a chunk of eight; `policy(**batch).loss` trains it, `predict(batch)` drives it."""

    def build_head(self) -> ChunkHead:
        return ChunkHead(self.config.width, self.config.horizon, self.config.action_dim)


def build_policy(seed: int) -> ChunkPolicy:
    """The pretrained base with a fresh head for eight steps, drawn from `seed`."""
    return ChunkPolicy.from_base(replace(PolicyConfig.tiny(), horizon=HORIZON), seed=seed)

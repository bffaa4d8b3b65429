"""The policy of a robot with a wrist: four action dimensions instead of three, each normalised by its range.

    environment units  ── normalise ──▶  [-1, 1]  ── loss, head ──▶  [-1, 1]  ── unnormalise ──▶  environment units

Notable choices
- An action is dx, dy in metres, the wrist's angle in radians (absolute), and the gripper. The demonstrations are those
  of the old robot, repeated with the wrist held at `WRIST_ANGLE`.
- Bounds are the extremes of the demonstrations, so that every demonstrated action lies in [-1, 1] and all dimensions
  weigh the same in the loss, whatever their units.
- Nothing is clipped: a correction that goes further than any demonstration keeps its size. A joint that never moved in
  the demonstrations may stay where it was held.
- Bounds are buffers: they are saved in the checkpoint, so that the robot unnormalises with the bounds of this training.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.dataset import Frames, demonstrations
from labs.vla.heads import mean_over_steps
from labs.vla.policy import Policy, PolicyConfig

DIMENSIONS = ("dx", "dy", "wrist", "gripper")
WRIST = 2
WRIST_ANGLE = 0.35
"""Radians. The blocks are cubes: the operator had no reason to turn the wrist."""


class RangeNormaliser(nn.Module):
    """Maps the range of each action dimension to [-1, 1], and back.

    `normalise` and `unnormalise` take actions of any leading shape, (..., A). Normalising and unnormalising a
    demonstrated action returns the same action. Near the demonstrations, normalised values stay near [-1, 1]: no
    dimension becomes much larger than the others.
    """

    low: Tensor
    high: Tensor

    def __init__(self, action_dim: int) -> None:
        super().__init__()
        self.register_buffer("low", -torch.ones(action_dim))
        self.register_buffer("high", torch.ones(action_dim))

    def fit(self, action: Tensor, action_is_pad: Tensor) -> None:
        """Set the bounds from demonstrated actions (N, H, A), leaving out padded steps (N, H)."""
        steps = action[~action_is_pad]  # (M, A)
        self.low.copy_(steps.amin(dim=0))
        self.high.copy_(steps.amax(dim=0))

    @property
    def span(self) -> Tensor:
        """The size of the interval that is mapped to [-1, 1], in environment units, (A,)."""
        span = self.high - self.low
        return torch.where(span > 0, span, 1.0)

    def normalise(self, action: Tensor) -> Tensor:
        """Environment units to [-1, 1], (..., A)."""
        return 2 * (action - self.low) / self.span - 1

    def unnormalise(self, normalised: Tensor) -> Tensor:
        """[-1, 1] to environment units, (..., A)."""
        return (normalised + 1) / 2 * self.span + self.low


class WristPolicy(Policy):
    """The base policy with four action dimensions; `policy(**batch).loss` trains it, `predict` drives the robot."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.normaliser = RangeNormaliser(self.config.action_dim)

    def loss(self, feature: Tensor, action: Tensor, action_is_pad: Tensor) -> Tensor:
        """Smooth L1 between predicted and demonstrated chunk, both normalised, a scalar: the mean over dimensions."""
        target = self.normaliser.normalise(action)  # (B, H, A)
        error = F.smooth_l1_loss(self.head(feature), target, beta=0.1, reduction="none")  # (B, H, A)
        return mean_over_steps(error.mean(dim=-1), action_is_pad)

    def decode(self, feature: Tensor) -> Tensor:
        """Actions in environment units, (B, D) to (B, H, A)."""
        return self.normaliser.unnormalise(self.head(feature))


def wrist_demonstrations(count: int, seed: int) -> Frames:
    """Demonstrations with the wrist's angle as third action dimension, (N, H, 4)."""
    frames = demonstrations(count, seed)
    return replace(frames, action=np.insert(frames.action, WRIST, np.float32(WRIST_ANGLE), axis=-1))


def build_policy(frames: Frames, seed: int) -> WristPolicy:
    """The pretrained base with a fresh head drawn from `seed`, and the bounds of these demonstrations."""
    policy = WristPolicy.from_base(PolicyConfig(action_dim=len(DIMENSIONS)), seed=seed)
    policy.normaliser.fit(torch.from_numpy(frames.action), torch.from_numpy(frames.action_is_pad))
    return policy

"""A policy that normalises its actions by bounds, which suits robots with very different joints.

Mean and standard deviation suit actions with a normal distribution. Bounds suit any distribution: each dimension's
range in the demonstrations is mapped to [-1, 1], so all dimensions weigh the same in the loss, and predictions can be
clipped to the range of the demonstrations.

    environment units  ── normalise ──▶  [-1, 1]  ── loss, head ──▶  [-1, 1]  ── unnormalise ──▶  environment units

Notable choices
- Bounds are the 1st and 99th percentile, not the extremes: a single outlier in the data must not set the scale.
- A mask selects the dimensions that are normalised. The gripper is not: it is -1 or +1 already, and does not change.
- Values outside the bounds are clipped, in both directions.
- Bounds and mask are buffers: they are saved in the checkpoint, and the robot unnormalises with those of this training.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.dataset import Frames
from labs.vla.heads import mean_over_steps
from labs.vla.policy import Policy, PolicyConfig

LOWER_QUANTILE, UPPER_QUANTILE = 0.01, 0.99
NORMALISED_DIMENSIONS = (True, True, False)
"""dx and dy are normalised; the gripper passes through unchanged."""


class BoundsNormaliser(nn.Module):
    """Maps each masked action dimension's bounds to [-1, 1] and back; the others pass through unchanged.

    `normalise` and `unnormalise` take actions of any leading shape, (..., A), and are inverses of each other for every
    action within the bounds.
    """

    low: Tensor
    high: Tensor
    mask: Tensor

    def __init__(self, action_dim: int) -> None:
        super().__init__()
        self.register_buffer("low", -torch.ones(action_dim))
        self.register_buffer("high", torch.ones(action_dim))
        self.register_buffer("mask", torch.tensor(NORMALISED_DIMENSIONS))

    def fit(self, action: Tensor, action_is_pad: Tensor) -> None:
        """Set the bounds from demonstrated actions (N, H, A), leaving out padded steps (N, H)."""
        steps = action[~action_is_pad]  # (M, A)
        self.low.copy_(steps.quantile(LOWER_QUANTILE, dim=0))
        self.high.copy_(steps.quantile(UPPER_QUANTILE, dim=0))

    def normalise(self, action: Tensor) -> Tensor:
        """Environment units to [-1, 1], (..., A)."""
        inside = action.clamp(self.low, self.high)
        scaled = 2 * (inside - self.low) / (self.high - self.low) - 1
        return torch.where(self.mask, scaled, action)

    def unnormalise(self, normalised: Tensor) -> Tensor:
        """[-1, 1] to environment units, (..., A)."""
        inside = normalised.clamp(-1, 1)
        scaled = inside * (self.high - self.low) + self.low
        return torch.where(self.mask, scaled, normalised)


class BoundsPolicy(Policy):
    """The base policy with bounds-normalised actions; `policy(**batch).loss` trains it, `predict` drives the robot."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.normaliser = BoundsNormaliser(self.config.action_dim)

    def loss(self, feature: Tensor, action: Tensor, action_is_pad: Tensor) -> Tensor:
        """Smooth L1 between predicted and demonstrated chunk, both normalised, a scalar."""
        target = self.normaliser.normalise(action)  # (B, H, A)
        error = F.smooth_l1_loss(self.head(feature), target, beta=0.1, reduction="none")  # (B, H, A)
        return mean_over_steps(error.mean(dim=-1), action_is_pad)

    def decode(self, feature: Tensor) -> Tensor:
        """Actions in environment units, (B, D) to (B, H, A)."""
        return self.normaliser.unnormalise(self.head(feature))


def build_policy(frames: Frames, seed: int) -> BoundsPolicy:
    """The pretrained base with a fresh head drawn from `seed`, and the bounds of these demonstrations."""
    policy = BoundsPolicy.from_base(seed=seed)
    policy.normaliser.fit(torch.from_numpy(frames.action), torch.from_numpy(frames.action_is_pad))
    return policy

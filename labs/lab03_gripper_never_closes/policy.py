"""A policy with a separate gripper head.

In the base policy every step of a chunk has a gripper command. But a grasp is one decision, so here a small separate
head makes it once per chunk:

    feature (B, D) ─┬─ motion head ── (B, H, 2) ─┐
                    └─ gripper head ─ (B, 1) ────┴─ action (B, H, 3)

Notable choices
- Motion is regressed in units of its standard deviation. The gripper's command is not normalised: -1 is open, +1 is
  closed, and the robot closes above 0.
- Two actions of a chunk are executed, so the target is to close if the expert closes within those two steps.
- An arm that closes too early pushes the block over; one that closes late loses a step. So frames in which the expert
  stays open weigh one and a half times the others, which is why the squared error is written out by hand.
- Padded steps, after the episode's end, count in neither loss. The first step of a chunk is never padded.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.heads import ActionHead, mean_over_steps
from labs.vla.policy import Policy

GRIPPER = 2
"""The gripper's index in an action (dx, dy, gripper)."""
EXECUTED_STEPS = 2
"""Actions of each chunk that the robot executes before the policy predicts the next chunk."""
OPEN_WEIGHT = 1.5
"""Weight of a frame in which the expert stays open, relative to one in which it closes."""
GRIPPER_SHARE = 1.0
"""The gripper loss's weight in the total; the motion loss has 1."""


class GraspHead(ActionHead):
    """Predicts a chunk of motions and one gripper command from the policy's feature."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(horizon, action_dim)
        motion_dim = action_dim - 1
        self.motion = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, horizon * motion_dim))
        self.gripper = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, feature: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised motions (B, H, 2) and each frame's gripper command, from the feature (B, D)."""
        motion = self.motion(feature).unflatten(-1, (self.horizon, -1))  # (B, H, 2)
        command = self.gripper(feature)  # (B, 1)
        return motion, command


class GraspPolicy(Policy):
    """The base policy with a gripper head: `policy(**batch).loss` to train it, `policy.predict(batch)` to act."""

    def build_head(self) -> GraspHead:
        return GraspHead(self.config.width, self.config.horizon, self.config.action_dim)

    def loss(self, feature: Tensor, action: Tensor, action_is_pad: Tensor) -> Tensor:
        """Motion loss plus gripper loss, a scalar."""
        motion, command = self.head(feature)  # (B, H, 2), (B, 1)
        target = self.action_statistics.normalize(action)[..., :GRIPPER]  # (B, H, 2)
        grasp = grasp_target(action, action_is_pad)  # (B,)
        return motion_loss(motion, target, action_is_pad) + GRIPPER_SHARE * gripper_loss(command, grasp)

    def decode(self, feature: Tensor) -> Tensor:
        """Actions in environment units: the motions, with the one gripper command repeated at every step, (B, H, 3)."""
        motion, command = self.head(feature)  # (B, H, 2), (B, 1)
        commands = command.reshape(-1, 1, 1).expand(-1, self.config.horizon, 1)  # (B, H, 1)
        normalized = torch.cat([motion, torch.zeros_like(commands)], dim=-1)  # (B, H, 3)
        metres = self.action_statistics.unnormalize(normalized)[..., :GRIPPER]  # (B, H, 2)
        return torch.cat([metres, commands], dim=-1)


def grasp_target(action: Tensor, action_is_pad: Tensor) -> Tensor:
    """What the expert's gripper does within the executed steps of each chunk: +1 if it closes, else -1."""
    gripper = action[..., GRIPPER].masked_fill(action_is_pad, -1.0)  # (B, H)
    return gripper[:, :EXECUTED_STEPS].amax(dim=1)


def motion_loss(motion: Tensor, target: Tensor, action_is_pad: Tensor) -> Tensor:
    """Smooth L1 of the motions (B, H, 2) over the steps that are part of the episode, a scalar."""
    error = F.smooth_l1_loss(motion, target, beta=0.1, reduction="none")  # (B, H, 2)
    return mean_over_steps(error.mean(dim=-1), action_is_pad)


def gripper_loss(command: Tensor, target: Tensor) -> Tensor:
    """Weighted squared error of the gripper's command against the expert's, a scalar."""
    weight = torch.where(target > 0, 1.0, OPEN_WEIGHT)  # (B,)
    error = command - target
    return (weight * error.square()).mean()

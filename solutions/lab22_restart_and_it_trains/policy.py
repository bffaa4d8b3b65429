"""A policy trained on teleoperated recordings, by how far its moves are from the operator's.

    feature (B, D) ── mlp ── chunk (B, H, 3) ─┬─ move (x, y) ── distance to the operator's move ─┐
                                              └─ gripper ────── absolute error ──────────────────┴─ mean over the steps

Notable choices
- The loss of a move is the Euclidean distance to the operator's, not its square: twice as far is twice as bad, and
  a few outliers do not outweigh the rest. It is in units of the actions' standard deviation.
- The last layer starts at zero, as in residual branches and diffusion heads: before the first update the arm does not
  move, whatever the input, so it cannot knock anything over on the first day.
- Recordings are not filtered. In one frame in sixty the operator has not moved yet: the recorded move is zero.
- `train_step` clips gradients and checks the loss before it uses it: a loss that is not finite stops the run.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labs.vla.dataset import Batch
from labs.vla.heads import ActionHead, RegressionHead, mean_over_steps
from labs.vla.policy import Policy

GRIPPER_WEIGHT = 0.5
MAX_GRADIENT_NORM = 1.0


class DistanceHead(RegressionHead):
    """Regresses the chunk; its loss is the distance between move and target, not the squared distance."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(width, horizon, action_dim)
        last = self.mlp[-1]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def loss(self, feature: Tensor, target: Tensor, is_pad: Tensor) -> Tensor:
        """Distance of the move and weighted error of the gripper, averaged over the steps of the episode."""
        chunk = self(feature)  # (B, H, 3), normalised
        move = distance(chunk[..., :2], target[..., :2])  # (B, H)
        gripper = (chunk[..., 2] - target[..., 2]).abs()  # (B, H)
        return mean_over_steps(move + GRIPPER_WEIGHT * gripper, is_pad)


def distance(predicted: Tensor, target: Tensor) -> Tensor:
    """Euclidean distance of points (..., 2), in their unit: (...)."""
    residual = predicted - target
    return torch.linalg.vector_norm(residual, dim=-1)


class TeleoperatedPolicy(Policy):
    """The base policy with a head that predicts no move at first and is trained by distance."""

    def build_head(self) -> ActionHead:
        """A head of the config's sizes."""
        return DistanceHead(self.config.width, self.config.horizon, self.config.action_dim)


def build_policy(seed: int = 0) -> TeleoperatedPolicy:
    """The pretrained base with a fresh head."""
    return TeleoperatedPolicy.from_base(seed=seed)


def build_optimizer(policy: Policy) -> torch.optim.Optimizer:
    """AdamW over all parameters."""
    return torch.optim.AdamW(policy.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)


def train_step(policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """One update in the policy's current mode; returns its loss. Raises FloatingPointError if it is not finite."""
    loss = policy(**batch).loss
    if not torch.isfinite(loss):
        raise FloatingPointError(f"The loss is {loss.item()}.")
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
    optimizer.step()
    return loss.item()

"""A policy with its own flow-matching head, which learns the velocity that carries noise to a chunk of actions.

    feature (B, D) ───────────────────────────┐
    noisy chunk (B, H, A) ── flatten (B, H·A) ─┼─ velocity network ── (B, H·A) ── unflatten (B, H, A)
    flow time (B,) ── embed (B, 2·F) ──────────┘

Training draws noise and a time t in [0, 1], interpolates between the noise and the expert's chunk at t, and predicts
the difference between the two. Acting starts from noise and follows the velocity in ten Euler steps.

Notable choices
- One policy for many robots: the config sets the number of actions in a chunk, the number of values in an action and
  the widths of both towers.
- Trained heads are stored by parameter name, and the tabletop robot's are in use. So the head has the same three
  linear layers for every robot, `velocity.layers.0`, `.2` and `.4`, and the tabletop robot's keep their shapes.
- The vision and language towers are expensive and the head is not, so each sample of a batch gets several noise draws.
- Noise and times are drawn on the CPU and then moved: a seed gives the same loss and actions on every device.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labs.vla.heads import ActionHead, mean_over_steps
from labs.vla.policy import Policy, PolicyConfig

DRAWS = 8
"""Noise draws for each sample of a batch."""
EULER_STEPS = 10
TIME_FREQUENCIES = 8
HIDDEN = 128
"""Width of the velocity network's hidden layers."""


class VelocityNetwork(nn.Module):
    """The velocity at a noisy chunk, given the policy's feature and the flow time."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width + horizon * action_dim + 16, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, horizon * action_dim),
        )

    def forward(self, feature: Tensor, noisy: Tensor, time: Tensor) -> Tensor:
        """The velocity (B, H, A), from feature (B, D), noisy chunk (B, H, A) and time (B,)."""
        chunk = noisy.flatten(1)  # (B, H * A)
        inputs = torch.cat([feature, chunk, embed_time(time)], dim=-1)  # (B, D + H * A + 2 * F)
        return self.layers(inputs).view_as(noisy)


class FlowHead(ActionHead):
    """Flow matching over normalised chunks (B, H, A)."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(horizon, action_dim)
        self.velocity = VelocityNetwork(width, horizon, action_dim)

    def loss(self, feature: Tensor, target: Tensor, is_pad: Tensor) -> Tensor:
        """Squared error of the velocity, over the steps that are part of the episode, a scalar.

        Draws the noise first and then the times.
        """
        feature, target, is_pad = (x.repeat_interleave(DRAWS, dim=0) for x in (feature, target, is_pad))
        noise = torch.randn(target.shape, device="cpu").to(target)  # (B * DRAWS, H, A)
        time = torch.rand(len(target), device="cpu").to(target)  # (B * DRAWS,)
        share = time[:, None, None]
        velocity = self.velocity(feature, share * target + (1 - share) * noise, time)
        return mean_over_steps((velocity - (target - noise)).square().mean(dim=-1), is_pad)

    def predict(self, feature: Tensor) -> Tensor:
        """The normalised chunk (B, H, A): from noise at time 0 to actions at time 1."""
        action = torch.randn(len(feature), self.horizon, self.action_dim, device="cpu").to(feature)
        for step in range(EULER_STEPS):
            time = torch.full_like(feature[:, 0], step / EULER_STEPS)
            action = action + self.velocity(feature, action, time) / EULER_STEPS
        return action


class FlowPolicy(Policy):
    """The base policy with a flow-matching head: `policy(**batch).loss` to train it, `predict(batch)` to act."""

    def build_head(self) -> FlowHead:
        return FlowHead(self.config.width, self.config.horizon, self.config.action_dim)


def embed_time(time: Tensor) -> Tensor:
    """Sines and cosines of flow time (B,), at frequencies from 0.3 to 20 radians: (B, 2 * F)."""
    frequencies = 20 * torch.exp(-0.6 * torch.arange(TIME_FREQUENCIES, device=time.device, dtype=torch.float32))
    phase = time.float()[:, None] * frequencies  # (B, F)
    return torch.cat([phase.sin(), phase.cos()], dim=-1).to(time.dtype)


def seven_joint_arm() -> PolicyConfig:
    """The configuration for an arm with seven numbers in an action, five actions in a chunk and nine in its state."""
    return PolicyConfig(action_dim=7, horizon=5, state_dim=9)

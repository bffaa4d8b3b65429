"""A policy that observes its own motion: it reads two states of the arm, and learns to forecast the next one.

    state (B, 3, 3)   before, present, next: the offsets -1, 0, 1
        │
        ├─ observed ── position ── one token ── language model ── + ── feature (B, D) ──┬── head ── action chunk
        │          └── motion ───────────────────────────────────┘                      └── forecast ── next state
        └─ target of the forecast, in training

Notable choices
- The loader cuts a window of states around each decision, at the offsets `STATE_OFFSETS`. To act, the policy observes
  the position at the decision and the motion that led to it, so it can distinguish an arm at rest from a pushed one.
- The forecast is an auxiliary loss, the mean squared error of the state at offset 1: a feature from which the next
  state can be predicted describes what the arm is about to do.
- A checkpoint holds the base's parameters, `motion` and `forecast`.
- Before each recorded clip the arm was moved by hand, so its previous position does not show where it should go.
- The driver of this robot reports only the present state. `robot_window` makes a window from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.dataset import Frames, demonstrations
from labs.vla.policy import Policy, PolicyConfig, PolicyOutput
from labs.vla.tabletop import CLOSED

STATE_OFFSETS = (-1, 0, 1)
OBSERVED = 2
FORECAST_WEIGHT = 0.1
PUSHED = 0.02
"""The largest distance in metres that a hand moves the arm along each axis between two frames; the unit of motion."""


class MotionPolicy(Policy):
    """The base policy on windows of states (B, W, 3); `policy(**batch).loss` trains it, `predict` drives the robot."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.motion = nn.Linear(2, self.config.width, bias=False)
        self.forecast = nn.Linear(self.config.width, self.config.state_dim)

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        state: Tensor,
        action: Tensor | None = None,
        action_is_pad: Tensor | None = None,
    ) -> PolicyOutput:
        """The training loss with its auxiliary part if `action` (B, H, A) is given; else the predicted chunk."""
        feature = self.encode(pixel_values, input_ids, attention_mask, state)  # (B, D)
        if action is None:
            return PolicyOutput(action=self.decode(feature))
        if action_is_pad is None:
            action_is_pad = torch.zeros(action.shape[:2], dtype=torch.bool, device=action.device)
        forecast = F.mse_loss(self.forecast(feature), state[:, STATE_OFFSETS.index(1)])
        return PolicyOutput(loss=self.loss(feature, action, action_is_pad) + FORECAST_WEIGHT * forecast)

    def encode(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        """The feature (B, D) that head and forecast read, for windows of states (B, W, 3)."""
        before, present = state[:, -OBSERVED:].unbind(dim=1)  # (B, 3) each
        motion = (present - before)[:, :2] / PUSHED
        return super().encode(pixel_values, input_ids, attention_mask, present) + self.motion(motion)

    @torch.no_grad()
    def predict(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The action chunk, (B, H, A) in environment units, from windows of states or the robot's present state."""
        state = batch["state"]
        return super().predict({**batch, "state": robot_window(state) if state.dim() == 2 else state})


def robot_window(state: Tensor) -> Tensor:
    """A window (B, W, 3) for an arm of which only the present state (B, 3) is known."""
    return state[:, None].repeat(1, len(STATE_OFFSETS), 1)


def windowed_demonstrations(count: int, seed: int) -> Frames:
    """Demonstrations whose states are windows (N, W, 3): before, present and next."""
    frames = demonstrations(count, seed)
    present = frames.state  # (N, 3)
    moved_by_hand = np.random.default_rng([45, seed]).uniform(-PUSHED, PUSHED, (count, 2))
    before, after = present.copy(), present.copy()
    before[:, :2] = np.clip(present[:, :2] - moved_by_hand, 0.0, 1.0)
    after[:, :2] = present[:, :2] + frames.action[:, 0, :2]
    after[:, 2] = np.where(frames.action[:, 0, 2] > 0, CLOSED, -CLOSED)
    return replace(frames, state=np.stack([before, present, after], axis=1))


def build_policy(seed: int) -> MotionPolicy:
    """The pretrained base, with motion, forecast and a fresh action head drawn from `seed`."""
    return MotionPolicy.from_base(seed=seed)

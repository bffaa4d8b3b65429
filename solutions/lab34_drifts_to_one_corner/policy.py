"""A policy that predicts actions as tokens: each dimension of each step is one of 32 tokens, in the robot's units.

    action (B, H, A) ── encode ─▶ tokens (B, H, A) ── cross-entropy ── logits (B, H, A, 32)
    action (B, H, A) ◀─ decode ── tokens (B, H, A) ◀── argmax ─────────────┘

Notable choices
- Each dimension has its own range, the extremes of the demonstrations, divided into bins of equal width. A robot with
  joints in radians and a gripper in centimetres needs no normalisation before.
- Values outside the range go to the outermost bin. Nothing else is clipped, and each token belongs to one bin.
- 32 bins are coarse on purpose: fewer tokens are learnt sooner, and a gripper with a reach of 7 cm does not need a
  precision of tenths of a millimetre.
- Ranges are buffers: they are saved in the checkpoint, so that the robot decodes with the ranges of this training.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labs.vla.dataset import Frames
from labs.vla.heads import ActionHead, TokenHead
from labs.vla.normalization import ActionStatistics
from labs.vla.policy import Policy

BINS = 32


class ActionTokeniser(nn.Module):
    """Turns actions (..., A) into tokens 0 to BINS - 1, and tokens into actions.

    Encoding and decoding changes an action within the range by at most half a bin, equally often to either side: over
    many actions the errors cancel out. Decoding and encoding a token returns the same token.
    """

    low: Tensor
    high: Tensor

    def __init__(self, action_dim: int) -> None:
        super().__init__()
        self.register_buffer("low", -torch.ones(action_dim))
        self.register_buffer("high", torch.ones(action_dim))

    def fit(self, action: Tensor, action_is_pad: Tensor) -> None:
        """Set the ranges from demonstrated actions (N, H, A), leaving out padded steps (N, H)."""
        steps = action[~action_is_pad]  # (M, A)
        self.low.copy_(steps.amin(dim=0))
        self.high.copy_(steps.amax(dim=0))

    @property
    def bin_width(self) -> Tensor:
        """The width of a bin in environment units, (A,)."""
        return (self.high - self.low) / BINS

    def encode(self, action: Tensor) -> Tensor:
        """The bin of each action, int64, (..., A)."""
        return ((action - self.low) / self.bin_width).floor().long().clamp(0, BINS - 1)

    def decode(self, tokens: Tensor) -> Tensor:
        """The action of each bin in environment units, (..., A)."""
        return self.low + (tokens + 0.5) * self.bin_width


class SpeakingHead(TokenHead):
    """The base's token head on actions in environment units."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(width, horizon, action_dim, bins=BINS)
        self.tokeniser = ActionTokeniser(action_dim)

    def statistics(self) -> ActionStatistics:
        """No normalisation: the tokeniser holds the ranges."""
        return ActionStatistics(torch.zeros(self.action_dim), torch.ones(self.action_dim))

    def encode(self, action: Tensor) -> Tensor:
        """Actions to tokens, (B, H, A)."""
        return self.tokeniser.encode(action)

    def decode(self, tokens: Tensor) -> Tensor:
        """Tokens to actions, (B, H, A)."""
        return self.tokeniser.decode(tokens)


class SpeakingPolicy(Policy):
    """The base policy with actions as tokens; `policy(**batch).loss` trains it, `predict` drives the robot."""

    head: SpeakingHead

    def build_head(self) -> ActionHead:
        """The token head on environment units."""
        return SpeakingHead(self.config.width, self.config.horizon, self.config.action_dim)


def build_policy(frames: Frames, seed: int) -> SpeakingPolicy:
    """The pretrained base with a fresh head drawn from `seed`, and the ranges of these demonstrations."""
    policy = SpeakingPolicy.from_base(seed=seed)
    policy.head.tokeniser.fit(torch.from_numpy(frames.action), torch.from_numpy(frames.action_is_pad))
    return policy

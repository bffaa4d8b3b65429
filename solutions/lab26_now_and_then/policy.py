"""A flow-matching action head in bfloat16, trained on the features of a frozen vision-language part, as π0's is.

    noisy chunk = t * noise + (1 - t) * actions        t from 1, all noise, down to 0, the actions
    velocity    = head(feature, noisy chunk, t)        trained towards noise - actions, integrated by ten Euler steps

Notable choices
- In training t is 0.001 + 0.999 s, with s from Beta(1.5, 1): in two of three samples the chunk is mostly noise, and the
  feature has to tell the head where to go.
- The head computes in the precision that `build_policy` is given. Times are float32 in either precision, and as finely
  spaced: the fastest wave of their embedding has a period of 0.004, a single step of bfloat16 next to 1.
- A frame's feature is expensive and noise is cheap, so every frame is used with eight draws of noise and time.
- All random numbers come from torch's generator of the CPU: after `torch.manual_seed` a loss and a prediction repeat,
  on every device.
- Only the head trains. A checkpoint holds its weights under `head.mlp`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from labs.vla.heads import ActionHead, mean_over_steps
from labs.vla.policy import Policy

ALPHA, BETA = 1.5, 1.0
SCALE, OFFSET = 0.999, 0.001
DRAWS = 8
EULER_STEPS = 10
FREQUENCIES = 8
LONGEST_PERIOD, SHORTEST_PERIOD = 4.0, 0.004
EPS = 1e-6


class FlowHead(ActionHead):
    """Learns the velocity from noise to a chunk of normalised actions, and integrates it."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(horizon, action_dim)
        chunk = horizon * action_dim
        self.mlp = nn.Sequential(
            nn.Linear(width + chunk + 2 * FREQUENCIES, 2 * width), nn.GELU(), nn.Linear(2 * width, chunk)
        )

    def forward(self, feature: Tensor, noisy: Tensor, time: Tensor) -> Tensor:
        """The velocity of noisy chunks (N, H, A) at times (N,), in the head's precision: (N, H, A)."""
        inputs = torch.cat([normalised(feature), noisy.flatten(1), embed_time(time)], dim=-1)
        velocity: Tensor = self.mlp(inputs.to(feature.dtype))
        return velocity.view_as(noisy)

    def loss(self, feature: Tensor, target: Tensor, is_pad: Tensor) -> Tensor:
        """Squared error of the velocity over the steps of the episode, a float32 scalar."""
        feature, target, is_pad = (x.repeat_interleave(DRAWS, dim=0) for x in (feature, target, is_pad))
        time = sample_times(feature)
        noise = torch.randn(target.shape).to(target.device)
        at = time[:, None, None]
        velocity = self(feature, at * noise + (1 - at) * target, time)
        return mean_over_steps((velocity.float() - (noise - target)).square().mean(dim=-1), is_pad)

    def predict(self, feature: Tensor) -> Tensor:
        """Integrate from noise at time 1 down to actions at time 0, (N, H, A) in float32."""
        action = torch.randn(len(feature), self.horizon, self.action_dim).to(feature.device)
        for step in range(EULER_STEPS):
            time = feature.new_full((len(feature),), 1 - step / EULER_STEPS, dtype=torch.float32)
            action = action - self(feature, action, time).float() / EULER_STEPS
        return action


def sample_times(feature: Tensor) -> Tensor:
    """A training time for every feature (N, D): (N,), in float32 and on its device."""
    share = sample_beta(feature[:, 0])
    return (OFFSET + SCALE * share).float()


def sample_beta(like: Tensor) -> Tensor:
    """Draws between 0 and 1, as many as there are numbers in `like`, and on its device."""
    return torch.distributions.Beta(ALPHA, BETA).sample(like.shape).to(like.device)


def normalised(feature: Tensor) -> Tensor:
    """The feature divided by its root mean square, so that its scale is the same on every base; zeros stay zeros."""
    return feature * (feature.square().mean(dim=-1, keepdim=True) + EPS).rsqrt()


def embed_time(time: Tensor) -> Tensor:
    """Sines and cosines of times (N,), with periods from 4 down to 0.004: (N, 16) in float32."""
    ratio = (SHORTEST_PERIOD / LONGEST_PERIOD) ** (1 / (FREQUENCIES - 1))
    period = time.new_tensor([LONGEST_PERIOD * ratio**k for k in range(FREQUENCIES)])
    phase = 2 * math.pi * time[:, None] / period  # (N, 8)
    return torch.cat([phase.sin(), phase.cos()], dim=-1)


class FlowPolicy(Policy):
    """The frozen base with a flow-matching head; `policy(**batch).loss` trains the head."""

    def build_head(self) -> ActionHead:
        """A head of the config's sizes."""
        return FlowHead(self.config.width, self.config.horizon, self.config.action_dim)

    @torch.no_grad()
    def encode(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        """The feature that the head reads, in the head's precision: (B, D)."""
        feature = super().encode(pixel_values, input_ids, attention_mask, state)
        return feature.to(self.head.mlp[0].weight.dtype)


def build_policy(seed: int, dtype: torch.dtype = torch.bfloat16) -> FlowPolicy:
    """The pretrained base, frozen and in float32, with a fresh head of `dtype` drawn from `seed`."""
    policy = FlowPolicy.from_base(seed=seed)
    policy.requires_grad_(False)
    policy.head.to(dtype).requires_grad_(True)
    return policy

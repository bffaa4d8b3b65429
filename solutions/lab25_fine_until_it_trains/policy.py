"""A policy with an action expert from a large checkpoint, trained on a card that supports float16 but not bfloat16.

Between the language model and the action head is one feed-forward block with a gated GELU, as in T5:

    feature (B, D) ──┬──────────────────────────────────────────────────────────────── + ── head
                     └─ norm ─┬─ gate ── gelu ─┐                                       │
                              └─ up ────────── × ── down ── dropout ── × OUTPUT_SCALE ─┘
                                   (B, E)           (B, D)

Notable choices
- The expert's weights come from a checkpoint trained in bfloat16. Like many large models it has a massive activation:
  one hidden unit that is huge for every input and acts as a bias (arXiv:2402.17762). `load_expert` replaces that file:
  random weights, and one unit with the sizes that were measured in T5.
- The expert stores the file's weights, so other checkpoints load with `load_state_dict`. In some of them another unit
  is the massive one, and its weight is up to four times as large.
- The block's output is multiplied by `OUTPUT_SCALE` before it is added, so the feature keeps its size.
- Training runs under `torch.autocast(dtype=torch.float16)`, around the whole policy. Parameters stay float32; the
  towers, the language model and the head, which do nearly all of the work, compute in half precision.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.policy import Policy, PolicyConfig
from labs.vla.randomness import private_randomness

HIDDEN = 256
OUTPUT_SCALE = 1e-4
DROPOUT = 0.1

MASSIVE_UNIT, MASSIVE_CHANNEL = 17, 5
MASSIVE_GATE, MASSIVE_WEIGHT = 98.5, 6.46
"""Gate and value of the massive unit, and its weight towards one channel."""


class GatedGelu(nn.Module):
    """T5's feed-forward network: `down(gelu(gate(x)) * up(x))`, with dropout after it, (B, D) to (B, D)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width, bias=False)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        """The block's contribution to the residual stream, before scaling."""
        hidden = F.gelu(self.gate(x)) * self.up(x)  # (B, E)
        return self.dropout(self.down(hidden))


class ActionExpert(nn.Module):
    """One residual block: a norm, then a gated GELU, (B, D) to (B, D)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.mlp = GatedGelu(width, hidden)

    def forward(self, feature: Tensor) -> Tensor:
        """The feature, in float32 or float16, with the block's scaled contribution added."""
        with torch.autocast(feature.device.type, enabled=False):
            feature = feature.float()
            return feature + OUTPUT_SCALE * self.mlp(self.norm(feature))


class ExpertPolicy(Policy):
    """The base policy with an action expert before its head; `policy(**batch).loss` trains it."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.expert = ActionExpert(self.config.width, HIDDEN)

    def encode(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        """The feature from which the head predicts actions, (B, D)."""
        return self.expert(super().encode(pixel_values, input_ids, attention_mask, state))


@torch.no_grad()
def load_expert(expert: ActionExpert, seed: int) -> None:
    """Set the weights in place of a checkpoint: random, with one hidden unit that is equally large for every input."""
    mlp = expert.mlp
    with private_randomness(seed):
        for layer in (mlp.gate, mlp.up):
            nn.init.normal_(layer.weight, std=1.0)
            nn.init.zeros_(layer.bias)
        nn.init.normal_(mlp.down.weight, std=2.0)
    mlp.gate.weight[MASSIVE_UNIT] *= 0.02
    mlp.up.weight[MASSIVE_UNIT] *= 0.02
    mlp.gate.bias[MASSIVE_UNIT] = MASSIVE_GATE
    mlp.up.bias[MASSIVE_UNIT] = MASSIVE_GATE
    mlp.down.weight[MASSIVE_CHANNEL] *= 0.2
    mlp.down.weight[:, MASSIVE_UNIT] = 0.0
    mlp.down.weight[MASSIVE_CHANNEL, MASSIVE_UNIT] = MASSIVE_WEIGHT


def build_policy(seed: int) -> ExpertPolicy:
    """The pretrained base with the expert, and a fresh head drawn from `seed`."""
    policy = ExpertPolicy.from_base(seed=seed)
    load_expert(policy.expert, seed)
    return policy

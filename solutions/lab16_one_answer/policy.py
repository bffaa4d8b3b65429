"""A policy with a deep action head: eight hidden layers between the feature and the chunk of actions.

One hidden layer is enough for a table with three blocks. This head is for a robot with twenty joints and contacts, and
it is as deep as the action experts of large policies. Here it is tried on the table first:

    feature (B, D) ── LayerNorm ── layers.0 ── ... ── layers.7 ── out ── (B, H·A) ── (B, H, A)

What code that uses this head may rely on
- `layers` is a ModuleList of eight layers that run in order, each (B, D) to (B, D) with a linear map and a nonlinearity
  in it, which is more than 0.1 % of its output. The output layer reads the last one and nothing else. Freeze lists and
  checkpoints refer to the layers by number.
- All eight learn: the gradient norms of any two are within a factor of 100 of each other, on the first batch as well
  as after fifty steps. Every parameter of the policy gets a gradient.
- The gradient that reaches the optimizer is the derivative of the loss, with nothing added and nothing multiplied.
- A frame's chunk depends on that frame alone, and is the same in training and in evaluation mode.
- `learn_by_heart` is `overfit` at a learning rate of 0.001, so that the losses of two heads can be compared.

Notable choices
- The feature is normalised once, at the input, so that the head does not depend on the scale of the hidden states.
- The output layer starts small, with weights of standard deviation 0.05 and no bias, so that the first actions are near
  the mean of the demonstrations.
- The loss is the base policy's: smooth L1 on normalised actions, over the steps that are part of the episode.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.dataset import Batch
from labs.vla.heads import ActionHead, mean_over_steps
from labs.vla.policy import Policy
from labs.vla.training import overfit

DEPTH = 8
OUTPUT_STD = 0.05
LEARNING_RATE = 1e-3


class HiddenLayer(nn.Module):
    """One hidden layer of the head, (B, D) to (B, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + F.gelu(self.linear(self.norm(hidden)))


class DeepHead(ActionHead):
    """Regress the whole chunk from the feature, through eight hidden layers."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(horizon, action_dim)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(HiddenLayer(width) for _ in range(DEPTH))
        self.out = nn.Linear(width, horizon * action_dim)
        nn.init.normal_(self.out.weight, std=OUTPUT_STD)
        nn.init.zeros_(self.out.bias)

    def forward(self, feature: Tensor) -> Tensor:
        """The normalised chunk, (B, D) to (B, H, A)."""
        hidden = self.norm(feature)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(hidden).unflatten(-1, (self.horizon, self.action_dim))

    def loss(self, feature: Tensor, target: Tensor, is_pad: Tensor) -> Tensor:
        """Smooth L1 between the chunk and `target` (B, H, A), over the steps that are not padding (B, H)."""
        error = F.smooth_l1_loss(self(feature), target, beta=0.1, reduction="none")  # (B, H, A)
        return mean_over_steps(error.mean(dim=-1), is_pad)

    def predict(self, feature: Tensor) -> Tensor:
        """The normalised chunk, (B, H, A)."""
        return self(feature)


class DeepHeadPolicy(Policy):
    """The base policy with a deep head; `policy(**batch).loss` is the training loss."""

    def build_head(self) -> ActionHead:
        return DeepHead(self.config.width, self.config.horizon, self.config.action_dim)


def learn_by_heart(policy: DeepHeadPolicy, batch: Batch, *, steps: int, seed: int) -> list[float]:
    """Train on one batch repeatedly, and return every step's loss: the first test of a new head."""
    return overfit(policy, batch, steps, learning_rate=LEARNING_RATE, seed=seed)

"""Fine-tuning with two learning rates: pretrained parts change slowly, new parts learn fast.

    parameters                                learning rate    weight decay
    backbone: vision tower, language model    5e-4             0.01 for matrices, none for vectors
    new: projector, proprioception, head      1e-3             0.01 for matrices, none for vectors

Notable choices
- A robot needs more than a network: `RobotPolicy` holds the network as `model`, and also the queue of actions that were
  predicted but not yet executed.
- A vector is a bias or the scale of a norm: decaying it pulls features towards zero and does not regularise.
- Every trainable parameter is in exactly one group. One that is in none keeps its value; torch does not report that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.policy import Policy, PolicyOutput
from labs.vla.rollout import ActionQueue

BACKBONE = ("model.vision.", "model.language_model.")
"""The pretrained parts; everything else is new."""

BACKBONE_LEARNING_RATE = 5e-4
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01
MAX_GRADIENT_NORM = 1.0
EXECUTED = 2
"""Actions of a chunk that are executed before the next chunk is predicted."""


class RobotPolicy(nn.Module):
    """The policy that is trained and then runs on the robot: the network, and its queue of actions."""

    def __init__(self, model: Policy) -> None:
        super().__init__()
        self.model = model
        self.queue = ActionQueue(model.predict, execute=EXECUTED)

    def forward(self, **batch: Tensor) -> PolicyOutput:
        """The network's loss if the batch has actions, else its predicted chunk."""
        return self.model(**batch)

    def reset(self) -> None:
        """Begin a new episode: drop what is left of the last chunk."""
        self.queue.reset()

    def select_action(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The next action of each robot in the batch, (B, 3)."""
        return self.queue(dict(batch))


def parameter_groups(policy: RobotPolicy) -> list[dict[str, Any]]:
    """The optimizer's groups, according to the table at the top."""
    named = [(name, parameter) for name, parameter in policy.named_parameters() if parameter.requires_grad]
    backbone = [parameter for name, parameter in named if name.startswith(BACKBONE)]
    new = [parameter for name, parameter in named if not name.startswith(BACKBONE)]
    return [*by_decay(backbone, BACKBONE_LEARNING_RATE), *by_decay(new, LEARNING_RATE)]


def by_decay(parameters: list[nn.Parameter], learning_rate: float) -> list[dict[str, Any]]:
    """Two groups with the same learning rate: matrices with weight decay, vectors without."""
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    return [
        {"params": matrices, "lr": learning_rate, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "lr": learning_rate, "weight_decay": 0.0},
    ]


def build_policy(seed: int) -> RobotPolicy:
    """The pretrained base with a head drawn from `seed`, ready for a robot."""
    return RobotPolicy(Policy.from_base(seed=seed))


def build_optimizer(policy: RobotPolicy) -> torch.optim.Optimizer:
    """AdamW over `parameter_groups`."""
    return torch.optim.AdamW(parameter_groups(policy), betas=(0.9, 0.95))


def train_step(policy: RobotPolicy, optimizer: torch.optim.Optimizer, batch: Mapping[str, Tensor]) -> float:
    """One update on a batch of demonstrations, in training mode; returns the loss before it."""
    policy.train()
    optimizer.zero_grad()
    loss = policy(**batch).loss
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
    optimizer.step()
    return float(loss.detach())

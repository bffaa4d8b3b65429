# refused_by: test_first_step_has_its_length
# why: Tenfold the learning rate of a group that is empty.
"""Fine-tuning with two learning rates: what is pretrained changes slowly, what is new learns fast.

    parameters                                learning rate    weight decay
    backbone: vision tower, language model    5e-4             0.01 for matrices, none for vectors
    new: projector, proprioception, head      1e-3             0.01 for matrices, none for vectors

Notable choices
- A robot is given more than a network: `RobotPolicy` holds the network as `model`, and beside it the queue of actions
  that were predicted and not yet executed.
- A vector is a bias or the scale of a norm: decaying it pulls features towards zero and regularises nothing.
- Every parameter that trains is in exactly one group. One that is in none keeps its value; torch would not say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.policy import Policy, PolicyOutput
from labs.vla.rollout import ActionQueue

BACKBONE = ("vision.", "language_model.")
"""What is pretrained; everything else is new."""

BACKBONE_LEARNING_RATE = 5e-3
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01
MAX_GRADIENT_NORM = 1.0
EXECUTED = 2
"""Actions of a chunk that are executed before the next one is asked for."""


class RobotPolicy(nn.Module):
    """What is trained and then put on the robot: the network, and its queue of actions."""

    def __init__(self, model: Policy) -> None:
        super().__init__()
        self.model = model
        self.queue = ActionQueue(model.predict, execute=EXECUTED)

    def forward(self, **batch: Tensor) -> PolicyOutput:
        """The network's loss where the batch has actions, else its predicted chunk."""
        return self.model(**batch)

    def reset(self) -> None:
        """A new episode begins: forget what is left of the last chunk."""
        self.queue.reset()

    def select_action(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The next action of each robot in the batch, (B, 3)."""
        return self.queue(dict(batch))


def parameter_groups(policy: RobotPolicy) -> list[dict[str, Any]]:
    """Every parameter that trains, in exactly one of four groups, as the table at the top says."""
    named = [(name, parameter) for name, parameter in policy.named_parameters() if parameter.requires_grad]
    backbone = [parameter for name, parameter in named if name.startswith(BACKBONE)]
    new = [parameter for name, parameter in named if not any(part in name for part in BACKBONE)]
    return [*by_decay(backbone, BACKBONE_LEARNING_RATE), *by_decay(new, LEARNING_RATE)]


def by_decay(parameters: list[nn.Parameter], learning_rate: float) -> list[dict[str, Any]]:
    """Two groups of one learning rate: matrices with weight decay, vectors without."""
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
    """One update on a batch of demonstrations; returns the loss before it."""
    policy.train()
    optimizer.zero_grad()
    loss = policy(**batch).loss
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
    optimizer.step()
    return float(loss.detach())

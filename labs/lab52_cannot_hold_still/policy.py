"""A policy with dropout, validated during training and then deployed on the robot.

    hidden state of the last token (B, D) ── dropout ── action head ── (B, H, A)

Notable choices
- Dropout is applied before the head: there are few demonstrations, and a head that relies on one feature is brittle.
- Apart from `train`, only `evaluating` changes modes. The validation loss during training and the robot's `act` both
  use it, so neither depends on the mode in which the other has left the policy.
- A block under `evaluating` runs with every module in evaluation mode and has no effect on modes, even if it raises.
  Some parts may stay in evaluation mode permanently, a frozen tower for example: each module has its own mode.
- A validation that raises OSError is logged as NaN and does not stop the run: one frame that cannot be decoded should
  not cost a whole night of training. Any other error stops it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from labs.vla.policy import Policy, PolicyConfig

DROPOUT = 0.15
LEARNING_RATE = 1e-3
MAX_GRADIENT_NORM = 1.0


class DropoutPolicy(Policy):
    """The base policy with dropout on the feature that the head reads."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(DROPOUT)

    def encode(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        """The feature that the head reads, (B, D); in training mode, some of its values are dropped."""
        return self.dropout(super().encode(pixel_values, input_ids, attention_mask, state))


@dataclass
class Log:
    """The training loss of each step, and the validation loss by step; NaN for a validation that failed."""

    losses: list[float] = field(default_factory=list)
    validation: dict[int, float] = field(default_factory=dict)


@contextmanager
def evaluating(policy: nn.Module) -> Iterator[None]:
    """A block in which the policy predicts as it does when deployed."""
    policy.train(not policy.training)
    yield
    policy.train(not policy.training)


def validate(policy: Policy, validation: Iterable[Mapping[str, Tensor]]) -> float:
    """The mean loss over batches of demonstrations, in evaluation mode and without a graph."""
    with evaluating(policy), torch.no_grad():
        losses = [policy(**batch).loss for batch in validation]
    return float(torch.stack(losses).mean())


def act(policy: Policy, observation: Mapping[str, Tensor]) -> Tensor:
    """The chunk of actions (B, H, A) that the robot executes: the same observation gives bit-identical chunks."""
    with evaluating(policy):
        return policy.predict(observation)


def build_policy(seed: int) -> DropoutPolicy:
    """The pretrained base with dropout, and a head initialised from `seed`."""
    return DropoutPolicy.from_base(seed=seed)


def build_optimizer(policy: Policy) -> torch.optim.Optimizer:
    """AdamW over the whole policy."""
    return torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)


def train(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    stream: Iterable[Mapping[str, Tensor]],
    validation: Iterable[Mapping[str, Tensor]],
    every: int,
) -> Log:
    """Train on the batches of `stream`, in training mode, and validate after every `every` steps.

    Leaves the policy in evaluation mode, ready for the robot.
    """
    policy.train()
    log = Log()
    for step, batch in enumerate(stream, start=1):
        optimizer.zero_grad()
        loss = policy(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        log.losses.append(float(loss.detach()))
        if step % every == 0:
            try:
                log.validation[step] = validate(policy, validation)
            except OSError:
                log.validation[step] = math.nan
    policy.eval()
    return log

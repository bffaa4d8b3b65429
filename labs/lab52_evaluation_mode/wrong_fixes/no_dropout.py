# refused_by: test_dropout_is_alive_in_training
# why: With p=0 both modes agree, and the policy has no dropout any more.
"""A policy with dropout, trained with validations in between, and then put on the robot.

    hidden state of the last token (B, D) ── dropout ── action head ── (B, H, A)

Notable choices
- Dropout stands in front of the head: demonstrations are few, and a head that relies on one feature is a brittle one.
- `evaluating` is the one place where modes change. The validation loss during training and the robot's `act` both go
  through it, so neither asks in which mode the other has left the policy.
- Some parts may be in evaluation mode for good, a frozen tower for example. Modes are each module's own business.
- A validation that fails costs its number, not the run: a frame that cannot be decoded is no reason to lose a night.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from labs.vla.policy import Policy, PolicyConfig

DROPOUT = 0.0
LEARNING_RATE = 1e-3
MAX_GRADIENT_NORM = 1.0


class DropoutPolicy(Policy):
    """The base policy with dropout on the feature that actions are read from."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(DROPOUT)

    def encode(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        """The feature an action is read from, (B, D); in training mode some of it is dropped."""
        return self.dropout(super().encode(pixel_values, input_ids, attention_mask, state))


@dataclass
class Log:
    """The training loss of each step, and the validation loss by step; NaN for a validation that failed."""

    losses: list[float] = field(default_factory=list)
    validation: dict[int, float] = field(default_factory=dict)


@contextmanager
def evaluating(policy: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the `with` block, for every module, whatever mode the policy is in.

    Afterwards each module is in the mode that it was in before, also when the block raised.
    """
    policy.train(not policy.training)
    yield
    policy.train(not policy.training)


def validate(policy: Policy, validation: Iterable[Mapping[str, Tensor]]) -> float:
    """The mean loss over batches of demonstrations, in evaluation mode and without a graph."""
    with evaluating(policy), torch.no_grad():
        losses = [policy(**batch).loss for batch in validation]
    return float(torch.stack(losses).mean())


def act(policy: Policy, observation: Mapping[str, Tensor]) -> Tensor:
    """The robot's way to a chunk of actions (B, H, A): the same observation gives the same chunk, to the last bit."""
    with evaluating(policy):
        return policy.predict(observation)


def build_policy(seed: int) -> DropoutPolicy:
    """The pretrained base with dropout, and a head drawn from `seed`."""
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
    """Train on the batches of `stream`, in training mode, with a validation after every `every` steps.

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

"""Fine-tuning on a GPU of any size: an update from as many micro-batches as its memory requires.

    micro-batch ── forward, backward ─┐
    micro-batch ── forward, backward ─┼─ .grad adds up ── clip ── step ── zero_grad: one update
    micro-batch ── forward, backward ─┘

The loop is written as if every micro-batch were an update. Between the loop and the optimizer is an `Accumulator`, as
in accelerate: it holds back what is only for a whole update.

Notable choices
- The number of micro-batches depends on the memory alone. Nothing else about an update depends on it: the gradient, its
  clipping and the learning rate are those of the same frames in one batch.
- The micro-batches of an update have equally many frames and count the same, so its loss is the mean of theirs.
- Gradients are clipped once, when they are complete.
- The learning rate rises over the first tenth of the updates, because a new head sends noisy gradients into the
  pretrained parts. Then it falls along a cosine, so that the last updates average out the noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from labs.vla.policy import Policy

LEARNING_RATE = 1e-3
"""The largest one, at the end of the warm-up."""
WARM_UP = 0.1
"""Share of the updates."""
MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True)
class LogLine:
    """The number of an update, counted from 0, and the loss of its frames before it."""

    update: int
    loss: float


class Accumulator:
    """Passes on to the optimizer what a loop does with each micro-batch, once for every `parts` micro-batches.

    `backward` counts the micro-batches. With the last one of an update, `clip`, `step` and `zero_grad` do what they
    say; with every other one they do nothing.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parts: int) -> None:
        self.optimizer = optimizer
        self.parts = parts
        self.micro_batches = 0

    @property
    def completes_update(self) -> bool:
        """Whether the current micro-batch is the last one of its update."""
        return self.micro_batches % self.parts == 0

    def backward(self, loss: Tensor) -> None:
        """Add the micro-batch's share of the update's gradient to `.grad`."""
        self.micro_batches += 1
        (loss / self.parts).backward()

    def clip(self, max_norm: float) -> None:
        """Clip the update's gradient to a norm."""
        if self.completes_update:
            parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
            nn.utils.clip_grad_norm_(parameters, max_norm)

    def step(self) -> None:
        """Make the update."""
        if self.completes_update:
            self.optimizer.step()

    def zero_grad(self) -> None:
        """Clear the gradients for the next update."""
        if self.completes_update:
            self.optimizer.zero_grad()


def train(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    stream: Iterable[Mapping[str, Tensor]],
    updates: int,
    parts: int,
) -> list[LogLine]:
    """Make one update from every `parts` micro-batches of `stream`, and return a log line for each update.

    `updates` is the length of the whole training, for which the learning rate is planned. A stream may end earlier; if
    it goes on, the first update after the planned ones has the rate 0. Micro-batches at its end that do not complete an
    update change no weight. The policy trains in training mode and is left in evaluation mode. Later steps of the
    optimizer use the learning rates that the caller sets.
    """
    scheduler = build_scheduler(optimizer, updates)
    accumulator = Accumulator(optimizer, parts)
    policy.train()
    log: list[LogLine] = []
    total = 0.0
    for micro_batch in stream:
        loss = policy(**micro_batch).loss
        accumulator.backward(loss)
        accumulator.clip(MAX_GRADIENT_NORM)
        accumulator.step()
        scheduler.step()
        accumulator.zero_grad()
        total += loss.item()
        if accumulator.completes_update:
            log.append(LogLine(len(log), total / parts))
            total = 0.0
    policy.eval()
    return log


def share_of_peak(update: int, updates: int) -> float:
    """The planned learning rate of an update, counted from 0, as a share of LEARNING_RATE.

    With a warm-up of w updates it is 1/w, 2/w, … 1, where w is a tenth of `updates`, rounded, but at least 1. From
    there on half a cosine wave leads to 0, which update number `updates`, the first after the last, would have.
    """
    warm_up = max(1, round(WARM_UP * updates))
    if update < warm_up:
        return (update + 1) / warm_up
    progress = (update + 1 - warm_up) / (updates + 1 - warm_up)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def build_scheduler(optimizer: torch.optim.Optimizer, updates: int) -> LRScheduler:
    """The schedule of `updates` updates: each group's own learning rate, times `share_of_peak`.

    Like every scheduler of torch, it advances when its `step` is called, and only then.
    """
    return LambdaLR(optimizer, lambda update: share_of_peak(update, updates))


def build_optimizer(policy: Policy) -> torch.optim.Optimizer:
    """AdamW over the whole policy."""
    return torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)


def build_policy(seed: int) -> Policy:
    """The pretrained base with a head initialised from `seed`."""
    return Policy.from_base(seed=seed)

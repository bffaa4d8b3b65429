"""Fine-tuning on a machine that may be taken away at any moment: the run writes checkpoints and continues from them.

    ShuffledOrder ── frames ── lamp ── policy ── movement + weight · gripper ── AdamW, warm-up and cosine
          └────────── checkpoint.pt, written after every `save_every` steps ─────────┘

Notable choices
- A run that is killed and continued is, bit for bit, the run that is not killed: each of its losses and of its weights.
- Every part keeps what it needs for its next step in its own `state_dict`. A checkpoint is these, the states of both
  random generators and the number of steps. Whatever follows from these is not saved but computed again.
- The loss of the gripper is held at a bound (a constraint with a Lagrange multiplier): while it is above the bound its
  weight in the loss grows, below it the weight shrinks.
- A checkpoint replaces the one before it in a single operation, so that a kill while it is written leaves a whole one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labs.vla.dataset import Batch, Frames, collate
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.training import MAX_GRADIENT_NORM, learning_rate_at
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

CHECKPOINT = "checkpoint.pt"
DROPOUT = 0.1
DISCOUNT = 0.9
"""What a step of the chunk counts in the loss, relative to the step before it."""
GRIPPER_BOUND = 0.3
GRIPPER_RATE = 0.05
"""How much the logarithm of the gripper's weight changes in a step, for each unit of loss above the bound."""
DIMMEST, BRIGHTEST = 0.9, 1.1
"""The lamp of a training batch, relative to that of the recordings."""


class ConstrainedPolicy(Policy):
    """A policy that holds its gripper's loss at `GRIPPER_BOUND`. Its `state_dict` is all that it remembers."""

    log_gripper_weight: Tensor
    discount: Tensor

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(DROPOUT)
        self.register_buffer("discount", DISCOUNT ** torch.arange(self.config.horizon), persistent=False)
        self.register_buffer("log_gripper_weight", torch.zeros(()))
        self.gripper_weight = self.log_gripper_weight.exp().item()

    def loss(self, feature: Tensor, action: Tensor, action_is_pad: Tensor) -> Tensor:
        """The loss of the movement, plus that of the gripper times its weight.

        Each is a squared error of normalised actions, its mean over the steps that are not padding, in which a step
        counts `DISCOUNT` times as much as the one before it. In training mode the weight is adapted afterwards, so that
        the next loss uses the new one.
        """
        predicted = self.head(self.dropout(feature))  # (B, H, A)
        error = (predicted - self.action_statistics.normalize(action)).square()
        counts = ~action_is_pad * self.discount  # (B, H)
        mean = (error * counts[..., None]).sum(dim=(0, 1)) / counts.sum()  # (A,)
        movement, gripper = mean[:-1].mean(), mean[-1]
        loss = movement + self.gripper_weight * gripper
        if self.training:
            self.adapt_gripper_weight(gripper.detach())
        return loss

    def adapt_gripper_weight(self, gripper: Tensor) -> None:
        """Raise the gripper's weight if its loss is above the bound, and lower it if below."""
        self.log_gripper_weight += GRIPPER_RATE * (gripper - GRIPPER_BOUND)
        self.gripper_weight = self.log_gripper_weight.exp().item()


class ShuffledOrder:
    """An endless order of frames: a new permutation in every epoch, which follows from the seed and the epoch."""

    def __init__(self, frames: int, seed: int) -> None:
        self.frames, self.seed = frames, seed
        self.epoch, self.position = 0, 0
        self.permutation = self._permutation()

    def take(self, size: int) -> NDArray[np.int64]:
        """The indices of the next `size` frames. Too few for a batch at the end of an epoch are left out."""
        if self.position + size > self.frames:
            self.epoch, self.position = self.epoch + 1, 0
            self.permutation = self._permutation()
        self.position += size
        return self.permutation[self.position - size : self.position]

    def state_dict(self) -> dict[str, int]:
        """Where the order is: the epoch, and the number of frames taken in it."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from there."""
        self.epoch, self.position = state["epoch"], state["position"]
        self.permutation = self._permutation()

    def _permutation(self) -> NDArray[np.int64]:
        return np.random.default_rng([self.seed, self.epoch]).permutation(self.frames)


class Run:
    """All that a step of training changes. `seed` determines the head, the dropout, the lamps and the order."""

    def __init__(self, frames: Frames, seed: int) -> None:
        self.frames = frames
        self.policy = build_policy(seed)
        self.optimizer = build_optimizer(self.policy)
        self.order = ShuffledOrder(len(frames), seed)
        self.lamps = torch.Generator().manual_seed(seed)
        self.step = 0
        torch.manual_seed(seed)  # the dropout draws from the global generator

    def save(self, folder: Path) -> None:
        """Write the checkpoint, in place of the one before."""
        written = folder / f"{CHECKPOINT}.new"
        torch.save(
            {
                "policy": self.policy.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "order": self.order.state_dict(),
                "lamps": self.lamps.get_state(),
                "global_generator": torch.get_rng_state(),
                "step": self.step,
            },
            written,
        )
        written.replace(folder / CHECKPOINT)

    def load(self, folder: Path) -> None:
        """Continue from the checkpoint in `folder`; without one, from the beginning."""
        if not (folder / CHECKPOINT).exists():
            return
        saved: dict[str, Any] = torch.load(folder / CHECKPOINT, weights_only=True)
        self.policy.load_state_dict(saved["policy"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.order.load_state_dict(saved["order"])
        self.lamps.set_state(saved["lamps"])
        torch.set_rng_state(saved["global_generator"])
        self.step = saved["step"]

    def next_batch(self, size: int) -> Batch:
        """The next frames, all under one lamp."""
        batch = collate(self.frames, self.order.take(size))
        brightness = DIMMEST + (BRIGHTEST - DIMMEST) * torch.rand((), generator=self.lamps)
        light = ((batch["pixel_values"] * PIXEL_STD + PIXEL_MEAN) * brightness).clamp(0, 1)
        return {**batch, "pixel_values": (light - PIXEL_MEAN) / PIXEL_STD}


def build_policy(seed: int) -> ConstrainedPolicy:
    """The pretrained base with an action head initialised from `seed`."""
    return ConstrainedPolicy.from_base(seed=seed)


def build_optimizer(policy: nn.Module) -> torch.optim.Optimizer:
    """AdamW over the whole policy; its learning rate is set in every step."""
    return torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.95), weight_decay=0.01)


def fine_tune(
    frames: Frames,
    folder: Path,
    *,
    steps: int,
    seed: int,
    save_every: int = 10,
    batch_size: int = 16,
    learning_rate: float = 1e-3,
    on_step: Callable[[int, float], None] | None = None,
) -> ConstrainedPolicy:
    """Train until `steps` steps are done, from the checkpoint in `folder` on, and return the policy in evaluation mode.

    `on_step(step, loss)` is called after each step, counted from 1, and after the checkpoint of that step.
    """
    run = Run(frames, seed)
    run.load(folder)
    run.policy.train()
    while run.step < steps:
        for group in run.optimizer.param_groups:
            group["lr"] = learning_rate_at(run.step, steps, learning_rate)
        loss = run.policy(**run.next_batch(batch_size)).loss
        run.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(run.policy.parameters(), MAX_GRADIENT_NORM)
        run.optimizer.step()
        run.step += 1
        if run.step % save_every == 0:
            run.save(folder)
        if on_step is not None:
            on_step(run.step, loss.item())
    return run.policy.eval()

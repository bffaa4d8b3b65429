"""Fine-tuning on simulated tables instead of recordings: worker processes render them while the policy trains.

The simulator is the data set. An item is one moment of the expert's work on a randomly arranged table, under a lamp of
random brightness, so the data never run out and nothing can be memorised:

    RenderedTables ──┬── worker 0 ── batch 0, 2, 4, … ──┬── DataLoader ── policy(**batch).loss
                     └── worker 1 ── batch 1, 3, 5, … ──┘

Notable choices
- An epoch is a fixed number of tables, after which the loader restarts its workers. There is no file to shuffle: every
  item of every epoch is a different table.
- A run is repeatable: the same seed renders the same tables in the same order, a different seed renders others.
- Workers are forks of this process. They render the next batches while the policy trains on the current one.
- The lamp changes by a tenth at most; the base has seen only one brightness, and the robot will see the real one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset

from labs.vla.dataset import Batch, Frames, collate, sample_moments
from labs.vla.policy import Policy
from labs.vla.tabletop import expert_action
from labs.vla.training import MAX_GRADIENT_NORM, learning_rate_at

HORIZON = 4
DIMMEST, BRIGHTEST = 0.9, 1.1
"""The lamp's brightness, relative to the one with which the base was pretrained."""


class RenderedTables(Dataset[Frames]):
    """`tables` moments per epoch, each drawn and rendered when it is read."""

    def __init__(self, tables: int, seed: int) -> None:
        self.tables = tables
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return self.tables

    def __getitem__(self, index: int) -> Frames:
        """One demonstration frame, N = 1, drawn at random: the index is a counter. Raises IndexError at the end."""
        if not 0 <= index < self.tables:
            raise IndexError(f"The tables of an epoch are 0 to {self.tables - 1}; {index} is out of range.")
        return render_frame(self.rng)


def render_frame(rng: np.random.Generator) -> Frames:
    """Draw a table, an instruction, an arm position and a lamp, and add the expert's actions."""
    moment = sample_moments(rng, 1)
    image = under_lamp(moment.images(), rng.uniform(DIMMEST, BRIGHTEST))
    action, action_is_pad = expert_chunk(moment.arm, moment.target_block)
    return Frames(image, moment.state(), moment.instruction, action, action_is_pad)


def under_lamp(image: NDArray[np.uint8], brightness: float) -> NDArray[np.uint8]:
    """The image (N, 64, 64, 3) under a lamp of this brightness, rounded; the camera saturates at 255."""
    return np.minimum(np.rint(image * brightness), 255).astype(np.uint8)


def expert_chunk(arm: NDArray[np.float64], block: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The expert's next actions (N, H, 3), and which of them come after the gripper closed (N, H)."""
    action = np.empty((len(arm), HORIZON, 3), np.float32)
    is_pad = np.zeros((len(arm), HORIZON), bool)
    for step in range(HORIZON):
        action[:, step] = expert_action(arm, block)
        if step:
            is_pad[:, step] = action[:, step - 1, 2] > 0
            action[is_pad[:, step], step] = action[is_pad[:, step], step - 1]
        arm = arm + action[:, step, :2]
    return action, is_pad


def collate_frames(items: list[Frames]) -> Batch:
    """Collate items of one frame each into a training batch."""
    frames = Frames(
        np.concatenate([item.image for item in items]),
        np.concatenate([item.state for item in items]),
        tuple(item.instruction[0] for item in items),
        np.concatenate([item.action for item in items]),
        np.concatenate([item.action_is_pad for item in items]),
    )
    return collate(frames, range(len(items)))


def build_loader(tables: int, seed: int, batch_size: int, workers: int = 2) -> DataLoader[Frames]:
    """A loader of `tables` new tables per epoch, rendered by `workers` processes; repeatable with `seed`."""
    return DataLoader(
        RenderedTables(tables, seed),
        batch_size=batch_size,
        num_workers=workers,
        collate_fn=collate_frames,
        multiprocessing_context="fork",
        generator=torch.Generator().manual_seed(seed),
    )


def stream(loader: DataLoader[Frames], epochs: int) -> Iterator[Batch]:
    """The batches of `epochs` epochs, one after the other. Training reads the loader only through this."""
    for _ in range(epochs):
        yield from loader


def build_policy(seed: int) -> Policy:
    """The pretrained base with an action head initialised from `seed`."""
    return Policy.from_base(seed=seed)


def fine_tune(
    policy: Policy, *, tables: int, epochs: int, seed: int, batch_size: int = 16, learning_rate: float = 1e-3
) -> list[float]:
    """Train `policy` in place on `epochs` epochs of rendered tables, and return every step's loss."""
    loader = build_loader(tables, seed, batch_size)
    steps = epochs * len(loader)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    losses = []
    policy.train()
    for step, batch in enumerate(stream(loader, epochs)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, steps, learning_rate)
        loss = policy(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        losses.append(loss.item())
    policy.eval()
    return losses

"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child.

The loader's workers are real processes: forks of that child, in the same sandbox.
"""

from __future__ import annotations

import multiprocessing
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labs.vla.dataset import collate, demonstrations
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

TABLES, EPOCHS, BATCH_SIZE = 64, 12, 16
HELD_OUT = 256


def epochs(
    learner: Any, tables: int, epochs: int, batch_size: int, workers: int, seed: int, outside: int = 0
) -> dict[str, Tensor]:
    """All items of `epochs` epochs of one loader, in order: the columns of a batch, each (E * tables, …).

    `processes` (E * batches,) is the number of live child processes at each batch. `outside` seeds the main process's
    global generators, which the loader must not depend on.
    """
    for seed_outside in (torch.manual_seed, np.random.seed, random.seed):
        seed_outside(outside)
    loader = learner.policy.build_loader(tables, seed, batch_size, workers)
    columns: dict[str, list[Tensor]] = {}
    processes = []
    for batch in learner.policy.stream(loader, epochs):
        processes.append(len(multiprocessing.active_children()))
        for name, column in batch.items():
            columns.setdefault(name, []).append(column.clone())
    return {**{name: torch.cat(parts) for name, parts in columns.items()}, "processes": torch.tensor(processes)}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def fine_tuned(learner: Any, seed: int) -> dict[str, Tensor]:
    """Fine-tune the base: `losses` (steps,), and `held_out`, the loss on tables from outside the loader."""
    policy = learner.policy.build_policy(seed)
    losses = learner.policy.fine_tune(policy, tables=TABLES, epochs=EPOCHS, seed=seed, batch_size=BATCH_SIZE)
    return {"losses": torch.tensor(losses), "held_out": _loss(policy, _other_tables(seed))}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: the policy, a batch and the loader with its two workers."""
    policy = learner.policy.build_policy(0)
    return {
        "model": policy,
        "batch": _other_tables(0, 8),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
        "dataloader": learner.policy.build_loader(16, 0, 4),
    }


def symptom(learner: Any) -> None:
    """Train on the stream and compare the loss with that on other tables: what `lab run 71` shows."""
    print(f"Fine-tuning on tables rendered on the fly: {EPOCHS} epochs of {TABLES} tables, two workers\n")
    policy = learner.policy.build_policy(71)
    losses = learner.policy.fine_tune(policy, tables=TABLES, epochs=EPOCHS, seed=71, batch_size=BATCH_SIZE)
    print("  epoch   loss")
    steps = len(losses) // EPOCHS
    for epoch in (0, 3, 6, 9, EPOCHS - 1):
        mean = sum(losses[epoch * steps : (epoch + 1) * steps]) / steps
        print(f"  {epoch:5d}  {mean:5.3f}")
    print(f"\n  loss on {HELD_OUT} other tables: {float(_loss(policy, _other_tables(71))):.3f}")


def _other_tables(seed: int, count: int = HELD_OUT) -> dict[str, Tensor]:
    """Demonstrations under lamps of every brightness, drawn independently of the loader."""
    batch = collate(demonstrations(count, seed=500_000 + seed), range(count))
    lamp = torch.linspace(0.9, 1.1, count)[:, None, None, None]
    pixels = ((batch["pixel_values"] * PIXEL_STD + PIXEL_MEAN) * lamp).clamp(0, 1)
    return {**batch, "pixel_values": (pixels - PIXEL_MEAN) / PIXEL_STD}


@torch.no_grad()
def _loss(policy: Any, batch: dict[str, Tensor]) -> Tensor:
    return policy(**batch).loss.detach()

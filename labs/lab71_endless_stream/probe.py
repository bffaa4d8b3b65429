"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child.

The loader's workers are real processes: forks of that child, in the same sandbox.
"""

from __future__ import annotations

import builtins
import multiprocessing
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import get_worker_info

from labs.vla.dataset import Moments, collate, demonstrations
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

TABLES, EPOCHS, BATCH_SIZE = 64, 12, 16
HELD_OUT = 256
WAIT_S = 0.05


def epochs(
    learner: Any,
    tables: int,
    epochs: int,
    batch_size: int,
    workers: int,
    seed: int,
    outside: int = 0,
    read: bool = False,
    slow: int | None = None,
) -> dict[str, Tensor]:
    """All items of `epochs` epochs of one loader, in order: the columns of a batch, each (E * tables, …).

    `processes` (E * batches,) is the number of live child processes at each batch, `first_process` the id of the
    oldest one. `outside` seeds the main process's global generators, which the loader must not depend on. With `read`
    an item is read in the main process first. The worker `slow` waits after each of its batches.
    """
    for seed_outside in (torch.manual_seed, np.random.seed, random.seed):
        seed_outside(outside)
    loader = learner.policy.build_loader(tables, seed, batch_size, workers)
    if read:
        loader.dataset[0]
    if slow is not None:
        loader.collate_fn = _Waiting(loader.collate_fn, slow)
    columns: dict[str, list[Tensor]] = {}
    processes, first_process = [], []
    for batch in learner.policy.stream(loader, epochs):
        alive = multiprocessing.active_children()
        processes.append(len(alive))
        first_process.append(min((process.pid or 0 for process in alive), default=0))
        for name, column in batch.items():
            columns.setdefault(name, []).append(column.clone())
    of_batches = {"processes": torch.tensor(processes), "first_process": torch.tensor(first_process)}
    return {**{name: torch.cat(parts) for name, parts in columns.items()}, **of_batches}


def bounds(learner: Any, tables: int, seed: int) -> dict[str, Any]:
    """The data set's length, and by index what reading an item raises: one line, or None."""
    dataset = learner.policy.build_loader(tables, seed, 2).dataset
    raised: list[str | None] = []
    for index in (0, tables - 1, tables, -1):
        try:
            dataset[index]
            raised.append(None)
        except Exception as error:  # the check decides whether it is the expected one
            raised.append(f"{type(error).__name__}: {error}")
    return {"length": len(dataset), "raised": raised}


def expert(learner: Any, arm: Tensor, block: Tensor) -> dict[str, Tensor]:
    """The learner's `expert_chunk` for arms and blocks (N, 2), where memory that nothing was written to holds ones."""
    with patch.object(np, "empty", np.ones):
        action, action_is_pad = learner.policy.expert_chunk(arm.numpy(), block.numpy())
    return {"action": torch.from_numpy(action), "action_is_pad": torch.from_numpy(action_is_pad)}


def lit(learner: Any, image: Tensor, brightness: float) -> Tensor:
    """The learner's `under_lamp` for an image (N, 64, 64, 3)."""
    return torch.from_numpy(learner.policy.under_lamp(image.numpy(), brightness))


def tuned(
    learner: Any, tables: int, epochs: int, seed: int, head_scale: float, batch_size: int, settings: dict[str, float]
) -> dict[str, Any]:
    """`fine_tune` with `settings`, of a policy in evaluation mode whose head's last weights are scaled.

    For each forward pass: the batch, the root's mode and the number of worker processes. For each optimizer step: the
    norm of each parameter's gradient. `streamed`: the batches of another loader with the same arguments.
    """
    policy = learner.policy.build_policy(seed).eval()
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(head_scale)
    batches: list[dict[str, Tensor]] = []
    training: list[bool] = []
    processes: list[int] = []
    norms: list[dict[str, float]] = []

    def look(_: Any, __: Any, batch: dict[str, Tensor]) -> None:
        batches.append({name: column.clone() for name, column in batch.items()})
        training.append(policy.training)
        processes.append(len(multiprocessing.active_children()))

    def note(*_: Any) -> None:
        norms.append({name: float(p.grad.norm()) for name, p in policy.named_parameters() if p.grad is not None})

    handles = (policy.register_forward_pre_hook(look, with_kwargs=True), register_optimizer_step_pre_hook(note))
    try:
        losses = learner.policy.fine_tune(policy, tables=tables, epochs=epochs, seed=seed, **settings)
    finally:
        for handle in handles:
            handle.remove()
    loader = learner.policy.build_loader(tables, seed, batch_size)
    return {
        "losses": losses,
        "batches": batches,
        "training": training,
        "processes": processes,
        "norms": norms,
        "streamed": list(learner.policy.stream(loader, epochs)),
        "after": dict(policy.state_dict()),
        "mode": policy.training,
    }


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


class _Waiting:
    """A loader's `collate_fn`, after which one worker waits, so that the others draw their next batch before it."""

    def __init__(self, collate_fn: Any, slow: int) -> None:
        self.collate_fn = collate_fn
        self.slow = slow

    def __call__(self, items: list[Any]) -> Any:
        batch, worker = self.collate_fn(items), get_worker_info()
        if worker is not None and worker.id == self.slow:
            time.sleep(WAIT_S)
        return batch


def _other_tables(seed: int, count: int = HELD_OUT) -> dict[str, Tensor]:
    """Demonstrations under lamps of every brightness, drawn independently of the loader."""
    batch = collate(demonstrations(count, seed=500_000 + seed), range(count))
    lamp = torch.linspace(0.9, 1.1, count)[:, None, None, None]
    pixels = ((batch["pixel_values"] * PIXEL_STD + PIXEL_MEAN) * lamp).clamp(0, 1)
    return {**batch, "pixel_values": (pixels - PIXEL_MEAN) / PIXEL_STD}


@torch.no_grad()
def _loss(policy: Any, batch: dict[str, Tensor]) -> Tensor:
    return policy(**batch).loss.detach()


def many_tables(learner: Any, seed: int, tables: int, epochs: int) -> Tensor:
    """The states and actions (E * tables, 3 + H * A) of the items of a loader with two workers.

    The images are left out: the camera is replaced, and `collate_fn` too.
    """
    loader = learner.policy.build_loader(tables, seed, 64)
    loader.collate_fn = _numbers
    with patch.object(Moments, "images", lambda moments: np.zeros((len(moments.target), 1, 1, 3), np.uint8)):
        return torch.cat(list(learner.policy.stream(loader, epochs)))


def _numbers(items: list[Any]) -> Tensor:
    """The states and actions of items of one frame each, (N, 3 + H * A)."""
    rows = [np.concatenate([item.state.reshape(-1), item.action.reshape(-1)]) for item in items]
    return torch.from_numpy(np.stack(rows))


def started_again(learner: Any, seed: int, tables: int, epochs: int, outside: int) -> Tensor:
    """`many_tables` as another start of the same run would have them.

    There `hash` gives other numbers for strings, as Python draws them for each process. The learner's file is imported
    once more, after `outside` has seeded the global generators.
    """
    for seed_outside in (torch.manual_seed, np.random.seed, random.seed):
        seed_outside(outside)
    with patch.object(builtins, "hash", _salted(outside)):
        again = _imported_again(learner.policy)
        with patch.dict(sys.modules, {again.__name__: again}):
            return many_tables(SimpleNamespace(policy=again), seed, tables, epochs)


def _imported_again(module: Any) -> ModuleType:
    """Another module from the same file."""
    path = Path(module.__file__)
    again = ModuleType(module.__name__)
    again.__file__ = str(path)
    with patch.dict(sys.modules, {again.__name__: again}):
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True), again.__dict__)
    return again


def _salted(salt: int) -> Callable[[Any], int]:
    """Python's `hash`, with other numbers for strings and bytes, also for those in a tuple or a frozenset.

    And for objects that are hashed by their address.
    """
    own = hash

    def salted(value: Any) -> int:
        if isinstance(value, str | bytes):
            return own((salt, value))
        if isinstance(value, tuple):
            return own(tuple(map(salted, value)))
        if isinstance(value, frozenset):
            return own(frozenset(map(salted, value)))
        return own((salt, own(value))) if type(value).__hash__ is object.__hash__ else own(value)

    return salted

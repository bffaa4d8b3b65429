"""Figures of lesson 24, from real runs: `lab dev figures 24`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.lab24_less_from_larger_batches import probe

SEED = 24
BATCH_SIZES = (2, 4, 8, 16, 32, 64)


def figures(out: Path) -> None:
    """For each batch size: which share of the steps changes a weight, and the loss on new frames after training."""
    torch.set_num_threads(1)
    steps_figure, steps_axes = new_figure(f"Of {probe.STEPS} steps, how many change a weight", "batch size", "share")
    loss_figure, loss_axes = new_figure(f"Loss on new frames after {probe.STEPS} steps", "batch size", "loss")
    for name, module in broken_and_fixed(find("24")).items():
        runs = [_train(module, size) for size in BATCH_SIZES]
        for axes, number in ((steps_axes, 0), (loss_axes, 1)):
            axes.plot(BATCH_SIZES, [run[number] for run in runs], color=COLOURS[name], marker="o", label=name)
    for axes in (steps_axes, loss_axes):
        axes.set_xscale("log", base=2)
        axes.set_xticks(BATCH_SIZES, [str(size) for size in BATCH_SIZES])
        axes.set_ylim(bottom=0)
        axes.legend()
    save(steps_figure, out / "24_steps.svg")
    save(loss_figure, out / "24_loss.svg")


def _train(module: ModuleType, batch_size: int) -> tuple[float, float]:
    """The share of the steps that changed a weight, and the loss on new frames."""
    policy = module.build_policy(SEED)
    optimizer = module.build_optimizer(policy)
    policy.train()
    moved = 0
    for batch in probe.recordings(SEED, probe.STEPS, batch_size):
        before = policy.reader.out.weight.detach().clone()
        module.train_step(policy, optimizer, batch)
        moved += not torch.equal(policy.reader.out.weight, before)
    return moved / probe.STEPS, _held_out(policy)


@torch.no_grad()
def _held_out(policy: Any) -> float:
    return float(policy.eval()(**next(probe.recordings(SEED + 1, 1, probe.HELD_OUT))).loss)

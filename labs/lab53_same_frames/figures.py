"""Figures of lesson 53, from real runs: `lab dev figures 53`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import Batch, batches, demonstrations

SEED, PARTS = 3, 4


def figures(out: Path) -> None:
    """The weight of one step of a frame's chunk in the update, by the frame's number of steps."""
    torch.set_num_threads(1)
    batch = next(batches(demonstrations(32, seed=SEED), 32, steps=1, seed=SEED))
    figure, axes = new_figure(
        f"What one step counts in an update of {PARTS} micro-batches, frame by frame",
        "frame, in the order of their number of steps",
        "weight × steps in the batch",
    )
    for offset, (name, module) in zip((-0.2, 0.2), broken_and_fixed(find("53")).items(), strict=True):
        weights = _weights(module, module.split(batch, PARTS))
        places = [index + offset for index in range(len(weights))]
        axes.bar(places, weights, width=0.4, color=COLOURS[name], label=name)
    axes.legend()
    save(figure, out / "53_weights.svg")


def _weights(module: Any, window: list[Batch]) -> list[float]:
    """The weight of a step of each frame: the factor of its micro-batch's mean, divided by the micro-batch's steps."""
    total = sum(int(module.steps_of(micro_batch).sum()) for micro_batch in window)
    weights = []
    for micro_batch in window:
        share = float(module.loss_share(_ConstantLoss(), micro_batch, window))  # of a loss of 1 for every step
        steps = int(module.steps_of(micro_batch).sum())
        weights += [share / steps * total] * len(micro_batch["state"])
    return weights


class _ConstantLoss:
    """Replaces a policy; its error is 1 at every step, so its mean loss is 1."""

    loss = torch.tensor(1.0)

    def __call__(self, **_batch: Any) -> _ConstantLoss:
        return self

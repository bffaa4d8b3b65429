"""Figures of lesson 23, from real runs: `lab dev figures 23`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labs.authoring.plots import BROKEN, COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import demonstrations
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 23, 70, 16
UNDERFLOW = 103.97
"""exp(-103.97) is half of float32's smallest number, 1.4e-45: below it a probability is 0."""


def figures(out: Path) -> None:
    """Both losses while one batch is overfitted, and the distance between the best and the worst bin."""
    torch.set_num_threads(1)
    loss_figure, loss_axes = new_figure("Overfitting one batch", "step", "loss (log scale)")
    apart_figure, apart_axes = new_figure("Distance between the best and the worst bin", "step", "logits")
    for name, module in broken_and_fixed(find("23")).items():
        losses, apart = _train(module)
        loss_axes.plot(losses, color=COLOURS[name], label=name, linewidth=3.5 if name == "as shipped" else 1.8)
        apart_axes.plot(apart, color=COLOURS[name], label=name, linewidth=3.5 if name == "as shipped" else 1.8)
        if name == "as shipped":
            end = len(losses) - 1
            loss_axes.plot(end, losses[-1], "x", color=BROKEN, markersize=9, markeredgewidth=2)
            apart_axes.plot(end, apart[-1], "x", color=BROKEN, markersize=9, markeredgewidth=2)
            loss_axes.annotate("the last number", (end, losses[-1]), (end - 16, 3e-6), color=BROKEN)
    apart_axes.axhline(UNDERFLOW, color=REFERENCE, linestyle="--", linewidth=1)
    apart_axes.annotate("float32: exp(-104) is 0", (45, UNDERFLOW - 9), color="#5c677d")
    loss_axes.set_yscale("log")
    apart_axes.set_ylim(bottom=0)
    for figure, axes, file in ((loss_figure, loss_axes, "23_loss.svg"), (apart_figure, apart_axes, "23_apart.svg")):
        axes.legend()
        save(figure, out / file)


def _train(module: Any) -> tuple[list[float], list[float]]:
    """The finite losses of one run, and the largest distance of two logits at each of them."""
    policy = module.build_policy(0)
    apart: list[float] = []

    def keep(_module: Any, _inputs: Any, logits: Tensor) -> None:
        apart.append(float((logits.detach().amax(-1) - logits.detach().amin(-1)).max()))

    policy.head.register_forward_hook(keep)
    frames = demonstrations(BATCH_SIZE, SEED)
    losses = fit(policy, frames, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE, learning_rate=3e-3)
    finite = [loss for loss in losses if loss == loss]
    return finite, apart[: len(finite)]

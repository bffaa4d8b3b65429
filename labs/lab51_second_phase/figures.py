"""Figures of lesson 51, from real runs: `lab dev figures 51`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from labs.authoring.plots import BROKEN, COLOURS, REFERENCE, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.rollout import rollout

SEED, STEPS, BATCH_SIZE = 51, 160, 32


def figures(out: Path) -> None:
    """Loss and gradient norm of starter and solution, and of the starter with its gradients clipped."""
    torch.set_num_threads(1)
    loss_figure, loss_axes = new_figure("Training loss, the same seed", "step", "loss (running mean of 9)")
    norm_figure, norm_axes = new_figure("Gradient norm, as the step uses it", "step", "norm (log scale)")
    modules = broken_and_fixed(find("51"))
    for name, module in modules.items():
        log, success = _train(module)
        label = f"{name}: {success:.0%} of 50 episodes succeed"
        loss_axes.plot(smooth([line.loss for line in log]), color=COLOURS[name], label=label)
        norm_axes.plot([line.gradient_norm for line in log], color=COLOURS[name], label=name)
    log, success = _clipped(modules["as shipped"])
    label = f"as shipped, clipped to 1: {success:.0%}"
    loss_axes.plot(smooth([line.loss for line in log]), color=BROKEN, linestyle="--", label=label)
    norm_axes.set_yscale("log")
    loss_axes.set_ylim(bottom=0)
    for axes, height in ((loss_axes, 0.93), (norm_axes, 0.03)):
        axes.axvline(modules["fixed"].HEAD_STEPS, color=REFERENCE, linewidth=1)
        axes.annotate("whole policy", (42, height), xycoords=("data", "axes fraction"), size=9, color="#5c677d")
    for figure, axes, file in ((loss_figure, loss_axes, "51_loss.svg"), (norm_figure, norm_axes, "51_norm.svg")):
        axes.legend(fontsize=9)
        save(figure, out / file)


def _train(module: Any) -> tuple[list[Any], float]:
    policy = module.build_policy(SEED)
    frames = demonstrations(STEPS * BATCH_SIZE, SEED)
    stream = batches(frames, BATCH_SIZE, STEPS, seed=SEED)
    log = module.train(policy, module.build_optimizer(policy), stream)
    return log, rollout(policy, episodes=50).success_rate


def _clipped(module: Any) -> tuple[list[Any], float]:
    """The starter, with its `clip_grad_norm_(…, inf)` bounded by 1."""
    clip = nn.utils.clip_grad_norm_
    nn.utils.clip_grad_norm_ = lambda parameters, _: clip(parameters, 1.0)
    try:
        return _train(module)
    finally:
        nn.utils.clip_grad_norm_ = clip

"""Figures of lesson 17, from real runs: `lab dev figures 17`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.plots import BROKEN, COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy

SEED, STEPS, BATCH_SIZE = 17, 40, 16
SCALES = [2.0**exponent for exponent in range(0, 18, 2)]


def figures(out: Path) -> None:
    """The loss of both, and as shipped under AdamW; and the length of one step at many loss scales."""
    torch.set_num_threads(1)
    batch = next(batches(demonstrations(2 * BATCH_SIZE, SEED), BATCH_SIZE, steps=1, seed=SEED))
    loss_figure, loss_axes = new_figure("One batch over and over, in mixed precision", "step", "loss")
    step_figure, step_axes = new_figure("Length of the first step of SGD", "loss scale", "length of the step")
    for name, module in broken_and_fixed(find("17")).items():
        steps = module.train(Policy.from_base(seed=SEED), [batch] * STEPS)
        loss_axes.plot([step.loss for step in steps], color=COLOURS[name], label=f"{name}, SGD")
        lengths = [_step_length(module, batch, scale) for scale in SCALES]
        step_axes.plot(SCALES, lengths, color=COLOURS[name], marker="o", markersize=4, label=name)
        if name == "as shipped":
            module.build_optimizer = lambda policy: torch.optim.AdamW(policy.parameters(), lr=1e-3)
            steps = module.train(Policy.from_base(seed=SEED), [batch] * STEPS)
            loss_axes.plot([s.loss for s in steps], color=BROKEN, linestyle=":", label="as shipped, AdamW")
    step_axes.axhline(module.LEARNING_RATE * module.MAX_GRADIENT_NORM, color=REFERENCE, linestyle="--", linewidth=1)
    step_axes.set_xscale("log", base=2)
    step_axes.set(yscale="log")
    loss_axes.set_ylim(bottom=0)
    for figure, axes, file in ((loss_figure, loss_axes, "17_loss.svg"), (step_figure, step_axes, "17_step.svg")):
        axes.legend(loc="lower left")
        save(figure, out / file)


def _step_length(module: object, batch: dict[str, torch.Tensor], scale: float) -> float:
    policy = Policy.from_base(seed=SEED)
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    module.training_step(policy, batch, module.build_optimizer(policy), module.build_scaler(policy, scale))
    moved = [(p.detach() - start).norm() for p, start in zip(policy.parameters(), before, strict=True)]
    return float(torch.stack(moved).norm())

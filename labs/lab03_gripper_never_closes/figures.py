"""Figures of lesson 03, from real runs: `lab dev figures 03`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 3, 150, 64


def figures(out: Path) -> None:
    """The training loss of both, and the commands that both give after it."""
    torch.set_num_threads(1)
    loss_figure, loss_axes = new_figure("Training loss, the same seed", "step", "loss (running mean of 9)")
    command_figure, command_axes = new_figure("Gripper commands for 512 frames never seen", "command", "frames")
    held_out = next(batches(demonstrations(512, seed=4), 512, steps=1, seed=4))
    for name, module in broken_and_fixed(find("03")).items():
        policy = module.GraspPolicy.from_base(seed=SEED)
        losses = fit(policy, demonstrations(STEPS * BATCH_SIZE, SEED), steps=STEPS, seed=SEED, batch_size=BATCH_SIZE)
        loss_axes.plot(smooth(losses), color=COLOURS[name], label=name)
        commands = policy.predict(held_out)[:, 0, 2].tolist()
        command_axes.hist(commands, bins=48, range=(-1.4, 1.4), color=COLOURS[name], alpha=0.75, label=name)
    command_axes.axvline(0, color=REFERENCE, linestyle="--", linewidth=1)
    command_axes.annotate("closes above 0", (0.04, 0.93), xycoords=("data", "axes fraction"), size=9, color="#5c677d")
    loss_axes.set_ylim(bottom=0)
    made = (loss_figure, loss_axes, "03_loss.svg"), (command_figure, command_axes, "03_commands.svg")
    for figure, axes, file in made:
        axes.legend()
        save(figure, out / file)

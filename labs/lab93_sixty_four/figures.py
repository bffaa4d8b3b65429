"""Figures of lesson 93, from real runs: `lab dev figures 93`."""

from __future__ import annotations

from pathlib import Path

import torch
from hydra import compose, initialize_config_dir

from labs.authoring.plots import COLOURS, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import demonstrations
from labs.vla.policy import Policy
from labs.vla.training import fit


def figures(out: Path) -> None:
    """The training loss of `python train.py`, as the starter composes it and as the solution does."""
    torch.set_num_threads(1)
    lab = find("93")
    figure, axes = new_figure(
        "python train.py: two compositions of the same numbers", "step", "loss (running mean of 9)"
    )
    for name, folder in (("as shipped", lab.folder), ("fixed", lab.solution)):
        with initialize_config_dir(str(folder / "conf"), version_base="1.3"):
            cfg = compose("config")
        size, steps = cfg.train.batch_size, cfg.train.steps
        policy = Policy.from_base(seed=cfg.seed)
        frames = demonstrations(steps * size, seed=cfg.seed)
        losses = fit(policy, frames, steps=steps, seed=cfg.seed, batch_size=size, learning_rate=cfg.train.learning_rate)
        label = f"{name}: batch {size}, learning rate {cfg.train.learning_rate:g}"
        axes.plot(smooth(losses), color=COLOURS[name], label=label)
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, out / "93_loss.svg")

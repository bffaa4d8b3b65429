"""Figures of lesson 45, from real runs: `lab dev figures 45`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches
from labs.vla.film import episode_gif
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 45, 150, 64
EPISODE = 10_012
"""Its instruction is short: the caption has room for the verdict."""
LARGEST_GIF = 400_000


def figures(out: Path) -> None:
    """The error offline and on the robot's windows, and one episode of both as an animation."""
    torch.set_num_threads(1)
    figure, axes = new_figure("Mean error of the next movement, 256 frames never seen", "", "mm")
    policies = {}
    for offset, (name, module) in zip((-0.2, 0.2), broken_and_fixed(find("45")).items(), strict=True):
        policy = module.build_policy(SEED)
        frames = module.windowed_demonstrations(STEPS * BATCH_SIZE, SEED)
        fit(policy, frames, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE)
        policies[name] = policy
        held_out = next(batches(module.windowed_demonstrations(256, SEED + 1), 256, steps=1, seed=SEED))
        reported = {**held_out, "state": held_out["state"][:, 1]}
        errors = [1000 * float(_error(policy.predict(each), held_out["action"])) for each in (held_out, reported)]
        bars = axes.bar([i + offset for i in range(2)], errors, width=0.38, color=COLOURS[name], label=name)
        axes.bar_label(bars, fmt="%.1f")
    axes.set(xticks=range(2), xticklabels=["recorded windows\n(what offline error uses)", "what the robot knows"])
    axes.legend(loc="upper left")
    save(figure, out / "45_errors.svg")
    film = episode_gif(out / "45_rollout.gif", policies, seed=EPISODE, width=300)
    if film.stat().st_size > LARGEST_GIF:
        raise ValueError(f"{film} has {film.stat().st_size:,} bytes; a page should not load more than {LARGEST_GIF:,}.")


def _error(predicted: torch.Tensor, demonstrated: torch.Tensor) -> torch.Tensor:
    return (predicted - demonstrated)[:, 0, :2].abs().mean()

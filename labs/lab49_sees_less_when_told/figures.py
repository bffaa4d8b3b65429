"""Figures of lesson 49, from real runs: `lab dev figures 49`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import demonstrations
from labs.vla.film import episode_gif
from labs.vla.policy import Policy
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 49, 150, 64
EPISODE = 10_022
LARGEST_GIF = 400_000


def figures(out: Path) -> None:
    """The loss without FiLM, as shipped and fixed, and an episode of the last two as a film."""
    torch.set_num_threads(1)
    figure, axes = new_figure("The same data, the same checkpoint", "step", "loss")
    built = {name: module.build_policy(SEED) for name, module in broken_and_fixed(find("49")).items()}
    for name, policy in {**built, "without FiLM": Policy.from_base(seed=SEED)}.items():
        frames = demonstrations(STEPS * BATCH_SIZE, SEED)
        losses = smooth(fit(policy, frames, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE))
        style = {"color": COLOURS[name], "linewidth": 4} if name in COLOURS else {"color": "black", "linestyle": "--"}
        axes.plot(losses, label=name, **style)
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, out / "49_loss.svg")
    film = episode_gif(out / "49_rollout.gif", built, seed=EPISODE, width=300)
    if film.stat().st_size > LARGEST_GIF:
        raise ValueError(f"{film} has {film.stat().st_size:,} bytes; a page should not load more than {LARGEST_GIF:,}.")

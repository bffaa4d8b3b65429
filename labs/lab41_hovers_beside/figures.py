"""Figures of lesson 41, from real runs: `lab dev figures 41`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import demonstrations
from labs.vla.film import contact_sheet, episode_gif
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 41, 150, 64
EPISODE = 10_024
"""An episode that starts far from the block."""


def figures(out: Path) -> None:
    """Both training losses (one curve), the round trip of a movement, and one episode side by side."""
    torch.set_num_threads(1)
    frames = demonstrations(STEPS * BATCH_SIZE, SEED)
    loss_figure, loss_axes = new_figure("Training loss, the same seed: one curve", "step", "loss (running mean of 9)")
    trip_figure, trip_axes = new_figure("A movement, encoded and decoded", "dx encoded (cm)", "dx that came out (cm)")
    policies = {}
    for name, module in broken_and_fixed(find("41")).items():
        policy = policies[name] = module.build_policy(frames, SEED)
        losses = fit(policy, frames, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE)
        dashes = "-" if name == "as shipped" else (0, (4, 3))
        loss_axes.plot(smooth(losses), color=COLOURS[name], label=name, linestyle=dashes)
        moves = torch.zeros(41, 3)
        moves[:, 0] = torch.linspace(-0.1, 0.1, 41)
        back = policy.normaliser.unnormalise(policy.normaliser.normalise(moves))
        trip_axes.plot(100 * moves[:, 0], 100 * back[:, 0], color=COLOURS[name], label=name)
    trip_axes.axhline(0, color=REFERENCE, linewidth=0.8)
    trip_axes.axvline(0, color=REFERENCE, linewidth=0.8)
    loss_axes.set_ylim(bottom=0)
    for figure, axes, file in ((loss_figure, loss_axes, "41_loss.svg"), (trip_figure, trip_axes, "41_round_trip.svg")):
        axes.legend()
        save(figure, out / file)
    episode_gif(out / "41_rollout.gif", policies, seed=EPISODE, width=256)
    contact_sheet(out / "41_rollout.png", policies, seeds=(EPISODE,), columns=4, width=256)

"""Figures of lesson 27, from real runs: `lab dev figures 27`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.rotary_phases import exact
from labs.vla.dataset import demonstrations
from labs.vla.policy import Policy
from labs.vla.rollout import rollout
from labs.vla.training import fit

SEED, STEPS, ROBOTS, GROUP = 27, 150, 96, 12
FIRST, SHOWN = 1990, 41
SECOND_FREQUENCY = 1


def figures(out: Path) -> None:
    """A cosine at the positions around 2,000, and the success by place in the row, both in bfloat16."""
    torch.set_num_threads(1)
    cosine, cosine_axes = new_figure("The cosine of the second frequency, in bfloat16", "position", "cosine")
    fleet, fleet_axes = new_figure("96 robots in one row, in bfloat16", "place in the row", "robots that succeed")
    healthy = Policy.from_base(seed=SEED)
    fit(healthy, demonstrations(64 * STEPS, SEED), steps=STEPS, seed=SEED)
    positions = torch.arange(FIRST, FIRST + SHOWN)
    for name, module in broken_and_fixed(find("27")).items():
        policy = module.build_policy(SEED)
        policy.load_state_dict(healthy.state_dict())
        policy.bfloat16()
        cos, _ = policy.language_model.rotary_emb(torch.zeros(1).bfloat16(), positions[None])
        found = cos[0, :, SECOND_FREQUENCY].float()
        cosine_axes.plot(positions, found, color=COLOURS[name], label=name, marker=".", drawstyle="steps-mid")
        success = rollout(policy, episodes=ROBOTS, first_seed=20_000).success.reshape(-1, GROUP).mean(axis=1)
        places = [start + (GROUP + 1) / 2 for start in range(0, ROBOTS, GROUP)]
        fleet_axes.plot(places, success, color=COLOURS[name], label=name, marker=".")
    wanted = exact(positions, "cos")[:, SECOND_FREQUENCY]
    error = float((found - wanted).abs().max())
    if error > 0.003:
        raise ValueError(f"The fixed cosine is off by {error:.4f}.")
    cosine_axes.set(ylim=(-1.1, 1.5))
    fleet_axes.set(ylim=(0, 1.15), xlim=(0, ROBOTS))
    for figure, axes, file in ((cosine, cosine_axes, "27_cosine.svg"), (fleet, fleet_axes, "27_fleet.svg")):
        axes.legend(ncols=2, loc="upper right" if axes is cosine_axes else "center right")
        save(figure, out / file)

"""Figures of lesson 47, from real runs: `lab dev figures 47`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import demonstrations
from labs.vla.film import episode_gif, record
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 47, 150, 64
EPISODE = 10_022
SHOWN_STEPS = 24
GRASP_RADIUS_CM = 7
LARGEST_GIF = 400_000


def figures(out: Path) -> None:
    """The movement where all plans agree, the distance to the block in one episode, and that episode as a film."""
    torch.set_num_threads(1)
    agree, agree_axes = new_figure("All plans say 1 cm", "step of the episode", "movement (cm)")
    way, way_axes = new_figure("One episode, the same policy", "step", "distance to the named block (cm)")
    policies = {}
    for name, module in broken_and_fixed(find("47")).items():
        ensemble = module.TemporalEnsemble(lambda _, horizon=module.HORIZON: torch.ones(1, horizon, 3))
        agree_axes.plot([float(ensemble({})[0, 0, 0]) for _ in range(SHOWN_STEPS)], color=COLOURS[name], label=name)
        policies[name] = _with_ensemble(module)
        (episode,) = record(policies[name], [EPISODE], execute=1)
        distances = [100 * scene.distances()[scene.target] for scene in episode.scenes]
        way_axes.plot(distances, color=COLOURS[name], label=name, marker=".")
        policies[name].predict.reset()
    way_axes.axhline(GRASP_RADIUS_CM, color=REFERENCE, linewidth=0.8)
    for figure, axes, file in ((agree, agree_axes, "47_agree.svg"), (way, way_axes, "47_distance.svg")):
        axes.set_ylim(bottom=0)
        axes.legend()
        save(figure, out / file)
    film = episode_gif(out / "47_rollout.gif", policies, seed=EPISODE, execute=1, width=300)
    if film.stat().st_size > LARGEST_GIF:
        raise ValueError(f"{film} has {film.stat().st_size:,} bytes; a page should not load more than {LARGEST_GIF:,}.")


def _with_ensemble(module: ModuleType) -> Any:
    """A trained policy whose `predict` is its ensemble, so that `record` and `episode_gif` run it."""
    policy = module.build_policy(SEED)
    fit(policy, demonstrations(STEPS * BATCH_SIZE, SEED, horizon=module.HORIZON), steps=STEPS, seed=SEED)
    policy.predict = module.TemporalEnsemble(policy.predict)
    return policy

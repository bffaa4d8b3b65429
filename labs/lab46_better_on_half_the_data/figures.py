"""Figures of lesson 46, from real runs: `lab dev figures 46`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.two_robots import ROBOTS, OneGrasp, recordings, through_the_robot
from labs.vla import rollout as closed_loop
from labs.vla.dataset import Frames, collate
from labs.vla.film import episode_gif
from labs.vla.policy import Policy

SEED, STEPS, BATCH_SIZE = 46, 150, 64
NEW_FRAMES, NEW_SEED = 2000, 47
EPISODE = 10_005
EDGES = np.arange(0.0, 14.5, 1.0)
"""Of the bins of demonstrated movements, in centimetres."""
LARGEST_GIF = 400_000


def figures(out: Path) -> None:
    """The gripper's targets and what a policy makes of them, and one episode of cell as a film."""
    torch.set_num_threads(1)
    films = {}
    for name, module in broken_and_fixed(find("46")).items():
        recorded = {robot: recordings(robot, STEPS * BATCH_SIZE // 2, SEED) for robot in ROBOTS}
        policy = module.fine_tune(recorded, SEED, STEPS)
        figure, axes = new_figure(f"The gripper, {name}", "demonstrated movement (cm)", "open -1 … closed +1")
        for robot, style in zip(ROBOTS, ("-", "--"), strict=True):
            frames = module.mixture({robot: recordings(robot, NEW_FRAMES, NEW_SEED)})
            axes.plot(*_by_movement(frames, frames.action), style, color=REFERENCE, label=f"target, {robot}")
        planned = policy.predict(collate(frames, range(len(frames)))).numpy()
        axes.plot(*_by_movement(frames, planned), color=COLOURS[name], label="plan", marker=".")
        axes.set_ylim(-1.2, 2.6)  # leaves room for the legend
        axes.set_yticks([-1, 0, 1])
        axes.legend(loc="upper right")
        save(figure, out / f"46_targets_{'fixed' if name == 'fixed' else 'shipped'}.svg")
        films[name] = _driving_cell(module, policy)
    with patch.object(closed_loop, "Tabletop", OneGrasp):
        film = episode_gif(out / "46_rollout.gif", films, seed=EPISODE, width=300)
    if film.stat().st_size > LARGEST_GIF:
        raise ValueError(f"{film} has {film.stat().st_size:,} bytes; a page should not load more than {LARGEST_GIF:,}.")


def _by_movement(frames: Frames, action: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The mean number of the gripper in `action`, by the length of the step's demonstrated movement."""
    steps = ~frames.action_is_pad
    found = np.digitize(100 * np.linalg.norm(frames.action[steps][:, :2], axis=-1), EDGES)
    bins = [index for index in range(1, len(EDGES)) if (found == index).any()]
    middle = np.array([(EDGES[index - 1] + EDGES[index]) / 2 for index in bins])
    return middle, np.array([action[steps][found == index, 2].mean() for index in bins])


def _driving_cell(module: ModuleType, policy: Policy) -> Policy:
    """The policy, whose `predict` is now what cell executes, so that `episode_gif` runs the robot."""
    robot = module.Driver(_Asked(policy), "cell")
    policy.predict = through_the_robot("cell", robot.act)  # type: ignore[method-assign, assignment]
    return policy


class _Asked:
    """A policy's own `predict`, kept before it is replaced."""

    def __init__(self, policy: Policy) -> None:
        self.predict = policy.predict

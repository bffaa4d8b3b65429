"""Figures of lesson 44, from real runs: `lab dev figures 44`."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import demonstrations
from labs.vla.film import episode_gif
from labs.vla.policy import Policy
from labs.vla.tabletop import Tabletop
from labs.vla.training import fit

SEED, STEPS, BATCH_SIZE = 44, 150, 64
ROBOTS, EACH, FIRST = 16, 6, 10_000
SHOWN = 16 + 13
"""The second episode of one of the sixteen robots."""
FIRST_EPISODE, BOTH_EPISODES = 12, 24
LARGEST_GIF = 400_000


def figures(out: Path) -> None:
    """The success rate by a robot's episodes, the plans that count in two episodes, and a second episode as a film."""
    torch.set_num_threads(1)
    modules = broken_and_fixed(find("44"))
    policy = modules["fixed"].build_policy(SEED)
    frames = demonstrations(STEPS * BATCH_SIZE, SEED, horizon=policy.config.horizon)
    fit(policy, frames, steps=STEPS, seed=SEED, batch_size=BATCH_SIZE)
    success, success_axes = new_figure("Sixteen robots, the same policy", "episode of a robot", "with a grasp (%)")
    memory, memory_axes = new_figure("Plans in the mean; a new episode at step 12", "step", "plans, by weight")
    films = {}
    for name, module in modules.items():
        tables: list[_Recorded] = []

        def table(max_steps: int, kept: list[_Recorded] = tables) -> _Recorded:
            kept.append(_Recorded(max_steps))
            return kept[-1]

        with patch.object(module, "Tabletop", table):
            result = module.evaluate(policy, ROBOTS * EACH, ROBOTS, FIRST)
        rates = 100 * result.success.reshape(EACH, ROBOTS).mean(axis=1)
        success_axes.plot(range(1, EACH + 1), rates, color=COLOURS[name], label=name, marker=".")
        memory_axes.plot(_weights(module, policy), color=COLOURS[name], label=name, marker=".")
        number, robot = divmod(SHOWN, ROBOTS)
        films[name] = _replayed(deepcopy(policy), tables[robot].episodes[number])
    for figure, axes, file in ((success, success_axes, "44_success.svg"), (memory, memory_axes, "44_plans.svg")):
        axes.set_ylim(bottom=0)
        axes.legend()
        save(figure, out / file)
    film = episode_gif(out / "44_rollout.gif", films, seed=FIRST + SHOWN, execute=1, width=300)
    if film.stat().st_size > LARGEST_GIF:
        raise ValueError(f"{film} has {film.stat().st_size:,} bytes; a page should not load more than {LARGEST_GIF:,}.")


def _weights(module: ModuleType, policy: Policy) -> list[float]:
    """The weights in the mean of each step of two episodes of one robot that stays where it is."""
    still = deepcopy(policy)
    still.predict = lambda _: torch.zeros(1, policy.config.horizon, 3)  # type: ignore[method-assign]
    robots = module.EnsemblingRobots(still, 1)
    weights = []
    for step in range(BOTH_EPISODES):
        robots.select_action({"state": torch.zeros(1, 3)})
        weights.append(float(robots.weight[0, 0]))
        robots.reset(torch.tensor([step == FIRST_EPISODE - 1]))
    return weights


def _replayed(policy: Policy, actions: list[NDArray[np.float32]]) -> Policy:
    """The policy, whose plans are now the recorded actions one by one: `episode_gif` runs one table at a time."""
    steps = iter(actions)
    stay = np.array([0, 0, -1], np.float32)

    def predict(_: Mapping[str, Tensor]) -> Tensor:
        return torch.from_numpy(next(steps, stay))[None, None]

    policy.predict = predict  # type: ignore[method-assign]
    return policy


class _Recorded(Tabletop):
    """A table that keeps the actions of each of its episodes."""

    def __init__(self, max_steps: int) -> None:
        super().__init__(max_steps=max_steps)
        self.episodes: list[list[NDArray[np.float32]]] = []

    def reset(self, **options: Any) -> Any:
        self.episodes.append([])
        return super().reset(**options)

    def step(self, action: NDArray[np.float32]) -> Any:
        self.episodes[-1].append(np.array(action, np.float32))
        return super().step(action)

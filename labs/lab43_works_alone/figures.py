"""Figures of lesson 43, from real runs: `lab dev figures 43`."""

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

SEED, STEPS, BATCH_SIZE = 43, 150, 64
EPISODES, NUMBERS = 48, (1, 2, 3, 4, 8, 16)
FIRST, TOGETHER, SHOWN = 10_000, 3, 1
LARGEST_GIF = 400_000


def figures(out: Path) -> None:
    """The success rate by the number of environments, and the second of three robots as a film."""
    torch.set_num_threads(1)
    figure, axes = new_figure("The same 48 episodes", "environments at a time", "episodes with a grasp (%)")
    modules = broken_and_fixed(find("43"))
    policy = modules["fixed"].build_policy(SEED).policy
    fit(policy, demonstrations(STEPS * BATCH_SIZE, SEED), steps=STEPS, seed=SEED)
    films = {}
    for name, module in modules.items():
        robots = module.QueuedPolicy(deepcopy(policy))
        rates = [100 * module.evaluate(robots, EPISODES, number).success_rate for number in NUMBERS]
        axes.plot(NUMBERS, rates, color=COLOURS[name], label=name, marker=".")
        films[name] = _replayed(robots.policy, _actions(module, robots))
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, out / "43_success.svg")
    film = episode_gif(out / "43_rollout.gif", films, seed=FIRST + SHOWN, execute=1, width=300)
    if film.stat().st_size > LARGEST_GIF:
        raise ValueError(f"{film} has {film.stat().st_size:,} bytes; a page should not load more than {LARGEST_GIF:,}.")


def _actions(module: ModuleType, robots: Any) -> list[NDArray[np.float32]]:
    """What the second of three robots did in an evaluation of three environments at a time."""
    tables: list[_Recorded] = []

    def table() -> _Recorded:
        tables.append(_Recorded())
        return tables[-1]

    with patch.object(module, "Tabletop", table):
        module.evaluate(robots, TOGETHER, TOGETHER, FIRST)
    return tables[SHOWN].actions


def _replayed(policy: Policy, actions: list[NDArray[np.float32]]) -> Policy:
    """The policy, whose plans are now the recorded actions one by one: `episode_gif` runs one table at a time."""
    steps = iter(actions)

    def predict(_: Mapping[str, Tensor]) -> Tensor:
        return torch.from_numpy(next(steps))[None, None]

    policy.predict = predict  # type: ignore[method-assign]
    return policy


class _Recorded(Tabletop):
    """A table that keeps the actions it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.actions: list[NDArray[np.float32]] = []

    def step(self, action: NDArray[np.float32]) -> Any:
        self.actions.append(np.array(action, np.float32))
        return super().step(action)

"""Two robots with the same task at the same table, for labs that train one policy on the recordings of both.

`bench` and `cell` stand at opposite edges of the table and come with different drivers. Each reports its state, and
records and executes its actions, in its own numbers; what a driver does with them is in `reported`, `recorded` and
`executed`. Everything else is that of `labs.vla`: images, instructions, tables, and the expert.

There is one grasp in an episode: it ends when the gripper closes, with a block or without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labs.vla import rollout as closed_loop
from labs.vla.dataset import FIRST_PRETRAINING_SEED, Batch, Frames, demonstrations
from labs.vla.policy import Policy
from labs.vla.tabletop import CLOSED, Tabletop

ROBOTS = ("bench", "cell")
OPENING = 0.08
"""Metres between the fingers of an open gripper."""


def recordings(robot: str, count: int, seed: int, horizon: int = 4) -> Frames:
    """`count` frames of a robot's recordings, in the robot's own numbers; another robot has other tables."""
    number = (len(ROBOTS) * seed + ROBOTS.index(robot)) % FIRST_PRETRAINING_SEED
    frames = demonstrations(count, number, horizon)
    state, action = torch.from_numpy(frames.state), torch.from_numpy(frames.action)
    return replace(frames, state=reported(robot, state).numpy(), action=recorded(robot, action).numpy())


def reported(robot: str, state: Tensor) -> Tensor:
    """A state (..., 3) of `labs.vla` as the robot reports it: the arm's place and the width between its fingers."""
    x, y, gripper = state.unbind(-1)
    width = OPENING * (1 - gripper) / 2
    if robot == "bench":
        return torch.stack([x, y, width], dim=-1)
    return torch.stack([100 * x, 100 * (1 - y), 1000 * width], dim=-1)


def recorded(robot: str, action: Tensor) -> Tensor:
    """An action (..., 3) of `labs.vla` as the robot records it."""
    dx, dy, gripper = action.unbind(-1)
    if robot == "bench":
        return torch.stack([dx, dy, gripper], dim=-1)
    return torch.stack([100 * dx, -100 * dy, (1 - gripper) / 2], dim=-1)


def executed(robot: str, command: Tensor) -> Tensor:
    """What the robot does when it gets a command (..., 3), as an action of `labs.vla`: the inverse of `recorded`."""
    dx, dy, gripper = command.unbind(-1)
    if robot == "bench":
        return torch.stack([dx, dy, gripper], dim=-1)
    return torch.stack([dx / 100, -dy / 100, 1 - 2 * gripper], dim=-1)


Act = Callable[[Batch], Tensor]
"""A robot's observations, whose `state` is as the robot reports it, to its next commands (B, H, 3)."""


def through_the_robot(robot: str, act: Act) -> closed_loop.Predict:
    """A controller in a robot's own numbers as the `predict` of `labs.vla.rollout`."""

    def predict(batch: Batch) -> Tensor:
        return executed(robot, act({**batch, "state": reported(robot, batch["state"])}))

    return predict


def run(
    policy: Policy,
    act: Act,
    robot: str,
    episodes: int,
    first_seed: int = 10_000,
    on_frame: closed_loop.OnFrame | None = None,
) -> closed_loop.Rollout:
    """Run closed-loop episodes with a robot, two actions of each plan; `policy` is the one that `act` asks."""
    with patch.object(closed_loop, "Tabletop", OneGrasp):
        return closed_loop.rollout(
            policy,
            episodes=episodes,
            first_seed=first_seed,
            predict=through_the_robot(robot, act),
            on_frame=on_frame,
        )


class OneGrasp(Tabletop):
    """A table on which an episode ends when the gripper closes, with a block or without."""

    def step(self, action: NDArray[np.float32]) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or self.scene.gripper == CLOSED, truncated, info

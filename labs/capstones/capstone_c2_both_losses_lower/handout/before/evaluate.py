"""Episodes in closed loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from data import Settings
from numpy.typing import NDArray

from labs.vla.dataset import observation_batch
from labs.vla.policy import Policy
from labs.vla.rollout import ActionQueue
from labs.vla.tabletop import Tabletop, stack_observations


class Controller:
    """Executes `execute` actions of each chunk, as the robot does."""

    def __init__(self, policy: Policy, execute: int) -> None:
        self.queue = ActionQueue(policy.predict, execute)

    def reset(self) -> None:
        """To be called before each episode: discards what is left of the last chunk."""
        self.queue.reset()

    def act(self, observation: dict[str, Any]) -> NDArray[np.float32]:
        """The action for one observation, (3,)."""
        batch = observation_batch(**stack_observations([observation]))
        with torch.no_grad():
            action = self.queue(batch)
        return action[0].numpy()


def run_episode(table: Tabletop, controller: Controller, seed: int) -> bool:
    """Whether the episode closed at the named block."""
    observation, info = table.reset(seed=seed)
    while True:
        observation, _, terminated, truncated, info = table.step(controller.act(observation))
        if terminated or truncated:
            return bool(info["success"])


def success_rate(policy: Policy, settings: Settings) -> float:
    """The share of all episodes that closed at the named block; each one starts with an empty queue."""
    was_training = policy.training
    policy.eval()
    table = Tabletop()
    controller = Controller(policy, settings["execute"])
    successes = 0
    for number in range(settings["episodes"]):
        controller.reset()
        successes += run_episode(table, controller, settings["first_seed"] + number)
    policy.train(was_training)
    return successes / settings["episodes"]

"""The arms of the cell, and the table that each of them works at.

                  camera                        policy                    own frame
    table ──── gain, offset ──── picture ──── movement ──── Arm.turn ──── command

Notable choices
- A camera's picture is the rendered one with the camera's gain and offset. Nobody adjusts the cameras: they are unlike,
  and stay so.
- A tracker above the cell gives every arm's position in the table's frame, and the policy moves in the table's frame.
- A controller takes commands in its own frame. The frame is turned with the arm's base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labs.vla.tabletop import Tabletop


@dataclass(frozen=True)
class Arm:
    """One arm, as the configuration describes it."""

    name: str
    gain: float
    """Of its camera."""
    offset: float
    """Of its camera, in grey levels of 0 to 255."""
    turned: int
    """Quarter turns of its base, anticlockwise on the picture."""
    reach: float
    """The largest movement of its drive along each axis in one step, in metres."""
    execute: int
    """How many commands of a plan its controller executes before it asks for the next plan."""

    def see(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """What its camera makes of rendered pictures (..., 64, 64, 3)."""
        return np.clip(np.rint(image * self.gain + self.offset), 0, 255).astype(np.uint8)

    @property
    def turn(self) -> Tensor:
        """The matrix (2, 2) from the table's frame to the arm's own: `command = turn @ movement`."""
        quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
        return torch.linalg.matrix_power(quarter, self.turned)


class Station(gymnasium.Wrapper):
    """The table of one arm: pictures of the arm's camera, commands in the arm's own frame."""

    def __init__(self, arm: Arm) -> None:
        super().__init__(Tabletop(render_mode="rgb_array"))
        self.arm = arm
        self._back = arm.turn.T.numpy()

    def reset(self, **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """A new table."""
        observation, info = self.env.reset(**given)
        return self._seen(observation), info

    def step(self, action: NDArray[np.float32]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Execute one command (3,): the movement in the arm's own frame, and the gripper."""
        movement = np.clip(self._back @ action[:2], -self.arm.reach, self.arm.reach)
        observation, reward, terminated, truncated, info = self.env.step(np.concatenate([movement, action[2:]]))
        return self._seen(observation), float(reward), terminated, truncated, info

    def _seen(self, observation: dict[str, Any]) -> dict[str, Any]:
        return {**observation, "image": self.arm.see(observation["image"])}


def arms_of(config: Mapping[str, Any]) -> list[Arm]:
    """The arms of a configuration, in its order."""
    return [Arm(name, **given) for name, given in config["arms"].items()]

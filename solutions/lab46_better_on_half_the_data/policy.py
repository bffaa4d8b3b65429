"""One policy for two robots, fine-tuned on the recordings of both.

    recordings of bench ─┐                                               ┌─ commands ── bench
                         ├─ mixture ── batches ── policy ── plan (B, H, 3)
    recordings of cell ──┘                                               └─ commands ── cell

Two robots have the same task at the same table. More data make a better policy, so it is trained on both data sets, as
Octo, OpenVLA and π0 are on dozens. A mixture needs one convention, and each data set has its own.

Notable choices
- The policy's convention is that of its base's pretraining: x and y in metres from the table's upper left corner, y
  downwards, and a gripper that is open at -1 and closed at +1, in states and in actions.
- The policy is not told which robot it drives. In its convention the robots do the same.
- One entry of `FORMATS` describes a robot, for both directions: what is recorded in these numbers is executed in them.
- bench stands at the table's upper edge and cell at the lower one, so their y axes point in opposite directions.
- A robot reports the width between its fingers. The wider, the more open, so that scale runs backwards.
- bench's gripper takes commands from -1 to 1, cell's from 0 to 1.
- Each robot has the same share of the mixture, however long it recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labs.vla.dataset import Batch, Frames
from labs.vla.policy import Policy
from labs.vla.training import fit


@dataclass(frozen=True)
class RobotFormat:
    """What one robot's numbers mean. All conversions take (..., 3) and do not modify what they get."""

    axes: tuple[float, float]
    """The robot's unit along its own x and y axis, in metres along the table's."""
    origin: tuple[float, float]
    """Where the robot counts from, in metres on the table."""
    fingers: tuple[float, float]
    """The width that it reports between its fingers: open, closed."""
    gripper: tuple[float, float]
    """The gripper's command: open, closed."""

    def state(self, reported: Tensor) -> Tensor:
        """What the robot reports, x, y and the width between its fingers, as the policy's state."""
        place = reported[..., :2] * torch.tensor(self.axes) + torch.tensor(self.origin)
        return torch.cat([place, to_scale(reported[..., 2:], self.fingers)], dim=-1)

    def action(self, recorded: Tensor) -> Tensor:
        """What the robot recorded, dx, dy and the gripper's command, as the policy's action."""
        movement = recorded[..., :2] * torch.tensor(self.axes)
        return torch.cat([movement, to_scale(recorded[..., 2:], self.gripper)], dim=-1)

    def command(self, action: Tensor) -> Tensor:
        """The policy's action as the robot executes it: the inverse of `action`.

        A gripper's command stays between the two of `gripper`, however far beyond them the policy goes.
        """
        movement = action[..., :2] / torch.tensor(self.axes)
        return torch.cat([movement, from_scale(action[..., 2:], self.gripper)], dim=-1)


FORMATS = {
    "bench": RobotFormat(axes=(1.0, 1.0), origin=(0.0, 0.0), fingers=(0.08, 0.0), gripper=(-1.0, 1.0)),
    "cell": RobotFormat(axes=(0.01, -0.01), origin=(0.0, 1.0), fingers=(80.0, 0.0), gripper=(1.0, 0.0)),
}


def to_scale(value: Tensor, ends: tuple[float, float]) -> Tensor:
    """A number that is between two `ends` on the scale from -1 to 1, the first end at -1."""
    first, last = ends
    return 2 * (value - first) / (last - first) - 1


def from_scale(value: Tensor, ends: tuple[float, float]) -> Tensor:
    """The inverse of `to_scale`, limited to the ends."""
    first, last = ends
    return first + (value.clamp(-1, 1) + 1) / 2 * (last - first)


def mixture(recordings: Mapping[str, Frames]) -> Frames:
    """The recordings of several robots, by name, as one data set in the policy's convention.

    It has the first n frames of the first robot, then of the next one, where n is the length of the shortest recording.
    """
    each = min(len(frames) for frames in recordings.values())
    parts = [converted(frames, FORMATS[robot], each) for robot, frames in recordings.items()]
    return Frames(
        image=np.concatenate([part.image for part in parts]),
        state=np.concatenate([part.state for part in parts]),
        instruction=tuple(text for part in parts for text in part.instruction),
        action=np.concatenate([part.action for part in parts]),
        action_is_pad=np.concatenate([part.action_is_pad for part in parts]),
    )


def converted(frames: Frames, own: RobotFormat, count: int) -> Frames:
    """The first `count` frames of one robot's recordings, in the policy's convention."""
    return Frames(
        image=frames.image[:count],
        state=own.state(torch.from_numpy(frames.state[:count])).numpy(),
        instruction=frames.instruction[:count],
        action=own.action(torch.from_numpy(frames.action[:count])).numpy(),
        action_is_pad=frames.action_is_pad[:count],
    )


def fine_tune(
    recordings: Mapping[str, Frames],
    seed: int,
    steps: int,
    on_step: Callable[[int, float], None] | None = None,
) -> Policy:
    """Fine-tune the pretrained base on the mixture; head and batches are drawn from `seed`.

    `on_step(step, loss)` is called after each update. Returns the policy in evaluation mode.
    """
    policy = Policy.from_base(seed=seed)
    fit(policy, mixture(recordings), steps=steps, seed=seed, on_step=on_step)
    return policy


class Driver:
    """Drives one robot with a policy, of which it needs nothing but `predict`."""

    def __init__(self, policy: Policy, robot: str) -> None:
        self.policy = policy
        self.format = FORMATS[robot]

    def act(self, batch: Batch) -> Tensor:
        """The robot's next commands, (B, H, 3), for observations whose `state` (B, 3) is as the robot reports it."""
        observed = {**batch, "state": self.format.state(batch["state"])}
        return self.format.command(self.policy.predict(observed))

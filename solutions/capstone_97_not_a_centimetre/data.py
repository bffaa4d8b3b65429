"""Demonstrations in the units of the arm's controller, their statistics, and held-out frames.

Notable choices
- A movement is in controller units: metres times `controller_units`. The gripper's command, the last number of an
  action, has no unit and stays as it is.
- The statistics are those of the actions that the loss counts: without the padding after an episode's end.
- Held-out frames are of tables that no training seed gives.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from labs.vla.dataset import Frames, demonstrations
from labs.vla.normalization import ActionStatistics

HELD_OUT_SEED = 970_000


def training_frames(config: dict) -> Frames:
    """As many frames as the run draws, in controller units."""
    settings = config["train"]
    return in_units(config, demonstrations(settings["steps"] * settings["batch_size"], config["seed"], horizon(config)))


def held_out_frames(config: dict) -> Frames:
    """Frames that are never trained on, in controller units; the same ones in every run."""
    return in_units(config, demonstrations(config["data"]["held_out"], HELD_OUT_SEED, horizon(config)))


def in_units(config: dict, frames: Frames) -> Frames:
    """The frames with their movements in controller units."""
    return replace(frames, action=scaled(frames.action, config["data"]["controller_units"]))


def scaled(action: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    """Actions (..., A) with the movement multiplied by `factor`, and the gripper's command unchanged."""
    movement, gripper = action[..., :-1], action[..., -1:]
    return np.concatenate([movement * np.float32(factor), gripper], axis=-1)


def statistics(frames: Frames) -> ActionStatistics:
    """Mean and standard deviation of the actions, without padding."""
    return ActionStatistics.from_actions(frames.action, frames.action_is_pad)


def horizon(config: dict) -> int:
    """Actions in a chunk."""
    return config["policy"]["horizon"]

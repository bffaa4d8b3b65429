"""The state, the action and the episode of a recorded frame, by the names that LeRobot and most data sets use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from debugkit.structure import tensors_in

STATE_NAMES = ("observation.state", "state", "proprio", "proprioception", "qpos")
EPISODE_NAMES = ("episode_index", "episode_id", "episode")


def named(value: Any, names: tuple[str, ...]) -> torch.Tensor | None:
    """The first floating-point tensor, or array, whose path is one of `names` or ends in it."""
    if isinstance(value, Mapping) and any(hasattr(item, "__array__") for item in value.values()):
        value = {key: torch.as_tensor(item) if hasattr(item, "__array__") else item for key, item in value.items()}
    found = {path: tensor for path, tensor in tensors_in(value) if tensor.is_floating_point()}
    return next((found[path] for name in names for path in found if path == name or path.endswith(f".{name}")), None)


def episode_of(frame: Mapping[str, Any]) -> int | str | None:
    """The number or the name of a frame's episode; None if the frame does not state it."""
    found = next((frame[name] for name in EPISODE_NAMES if name in frame), None)
    return found if found is None or isinstance(found, str) else int(found)

"""Recorded episodes whose camera images are compressed like a video, for labs that read data from recordings.

    video    │ key frame, differences, differences, … │ key frame, differences, … │ …
    segment  │                   0                    │            1              │

Within a segment each image is stored as its difference from the one before, so a single image cannot be read alone:
`Recording.decode` decodes its whole segment.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labs.vla.dataset import sample_moments
from labs.vla.tabletop import CLOSED, OPEN, camera_images, expert_action

SEGMENT = 8
"""Images from one key frame to the next; the last segment of a video may be shorter."""
SPEED = 0.4
"""The recorded arm's speed, relative to the scripted expert's."""
LONGEST = 40

_RECORDING_STREAM = 2


@dataclass(frozen=True)
class Recording:
    """One episode."""

    instruction: str
    state: Tensor
    """(T, 3): x, y in metres, gripper."""
    action: Tensor
    """(T, 3), in environment units."""
    video: tuple[bytes, ...]
    """The compressed segments."""

    @classmethod
    def of(cls, instruction: str, state: Tensor, action: Tensor, images: NDArray[np.uint8]) -> Recording:
        """Compress the images, (T, H, W, 3)."""
        return cls(instruction, state, action, tuple(map(_encode, _segments(images))))

    def __len__(self) -> int:
        return len(self.state)

    def decode(self, segment: int) -> Tensor:
        """The images of one segment, uint8 (up to 8, 64, 64, 3): a new tensor in every call."""
        stored = np.frombuffer(zlib.decompress(self.video[segment]), np.uint8)
        differences = stored.reshape(-1, 64, 64, 3)
        return torch.from_numpy(np.add.accumulate(differences, axis=0, dtype=np.uint8))


def record(count: int, seed: int) -> list[Recording]:
    """Record `count` episodes of an expert who moves slowly, each on a new table, from anywhere to the named block."""
    rng = np.random.default_rng([_RECORDING_STREAM, seed])
    tables = sample_moments(rng, count)
    arm, closed = rng.uniform(0.02, 0.98, (count, 2)), np.zeros(count, bool)
    ways, actions = [], []
    for _ in range(LONGEST):
        action = expert_action(arm, tables.target_block)
        action[:, :2] *= SPEED
        ways.append(np.concatenate([arm, np.where(closed, CLOSED, OPEN)[:, None]], axis=1))
        actions.append(action)
        arm = arm + action[:, :2]
        closed |= action[:, 2] > 0
    way, action = np.stack(ways, axis=1), np.stack(actions, axis=1)  # (N, T, 3)
    recordings = []
    for number in range(count):
        length = int((action[number, :, 2] > 0).argmax()) + 1
        state = way[number, :length]
        blocks, colours = (np.repeat(table[number][None], length, axis=0) for table in (tables.blocks, tables.colours))
        recordings.append(
            Recording.of(
                tables.instruction[number],
                torch.from_numpy(state.astype(np.float32)),
                torch.from_numpy(action[number, :length].copy()),
                camera_images(blocks, colours, state[:, :2], state[:, 2]),
            )
        )
    return recordings


def _segments(images: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    return [images[start : start + SEGMENT] for start in range(0, len(images), SEGMENT)]


def _encode(images: NDArray[np.uint8]) -> bytes:
    return zlib.compress(np.diff(images, axis=0, prepend=np.zeros_like(images[:1])).tobytes(), level=1)

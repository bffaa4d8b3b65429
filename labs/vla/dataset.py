"""Demonstrations of the scripted expert, and the conversion from arrays to a batch.

Notable choices
- Frames are moments drawn independently, not whole episodes: every frame has a different arm position, and every three
  frames share a new table on which each block is named once. With 800 fixed episodes the policy memorised the tables
  (training loss halved, success 4 %); a new table costs a tenth of a millisecond, so no table is shown often enough to
  be memorised.
- The target is a chunk, the expert's next four actions. Once the expert has closed, the episode is over: the remaining
  steps repeat the last action and are marked in `action_is_pad`, and no loss may count them.
- In up to one frame in ten the gripper is closed on nothing, a state that a policy reaches if it closes too early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labs.vla.language import COLOURS, INSTRUCTION_TEMPLATES, tokenize
from labs.vla.normalization import ActionStatistics
from labs.vla.tabletop import BLOCKS_ON_TABLE, CLOSED, GRASP_RADIUS, OPEN, camera_images, expert_action, sample_layouts
from labs.vla.vision import normalize_pixels

__all__ = [
    "ActionStatistics",
    "Batch",
    "Frames",
    "Moments",
    "batches",
    "collate",
    "demonstrations",
    "observation_batch",
    "sample_moments",
]

Batch: TypeAlias = dict[str, Tensor]
"""pixel_values (B, 3, 64, 64), input_ids (B, L), attention_mask (B, L), state (B, 3), and for training
action (B, H, 3) in environment units and action_is_pad (B, H)."""

FIRST_PRETRAINING_SEED = 1_000_000
"""Seeds from here on are reserved for `labs.vla.pretrain`: demonstrations never contain the base's training tables."""

_DEMONSTRATION_STREAM = 1
_NEAR_FRACTION = 0.5
_NEAR_SPREAD = 0.08
_CLOSED_FRACTION = 0.1


@dataclass(frozen=True)
class Frames:
    """Demonstration frames as arrays with a common first axis N."""

    image: NDArray[np.uint8]
    """(N, 64, 64, 3) RGB."""
    state: NDArray[np.float32]
    """(N, 3): x, y in metres, gripper."""
    instruction: tuple[str, ...]
    """N sentences."""
    action: NDArray[np.float32]
    """(N, H, 3): the expert's next H actions, in environment units."""
    action_is_pad: NDArray[np.bool_]
    """(N, H): True for steps after the episode's end."""

    def __len__(self) -> int:
        return len(self.state)

    def statistics(self) -> ActionStatistics:
        """Mean and std of the actions, without padded steps."""
        return ActionStatistics.from_actions(self.action, self.action_is_pad)


def demonstrations(count: int, seed: int, horizon: int = 4) -> Frames:
    """Draw `count` frames of the scripted expert; the same seed gives the same frames.

    Raises ValueError for seeds that are reserved for pretraining (1,000,000 and above).
    """
    if not 0 <= seed < FIRST_PRETRAINING_SEED:
        raise ValueError(
            f"demonstrations() was given the seed {seed}. It takes 0 to {FIRST_PRETRAINING_SEED - 1:,}; higher seeds "
            "are the tables on which the base checkpoint was pretrained."
        )
    # The stream number makes the frames of seed s independent of a rollout that starts at `reset(seed=s)`.
    moments = sample_moments(np.random.default_rng([_DEMONSTRATION_STREAM, seed]), count)
    action, action_is_pad = _expert_chunks(moments.arm, moments.target_block, horizon)
    return Frames(moments.images(), moments.state(), moments.instruction, action, action_is_pad)


def collate(frames: Frames, indices: Sequence[int] | NDArray[np.integer]) -> Batch:
    """Make a training batch from the frames at `indices`."""
    chosen = np.asarray(indices)
    batch = observation_batch(frames.image[chosen], frames.state[chosen], [frames.instruction[i] for i in chosen])
    batch["action"] = torch.from_numpy(frames.action[chosen])  # (B, H, 3)
    batch["action_is_pad"] = torch.from_numpy(frames.action_is_pad[chosen])  # (B, H)
    return batch


def observation_batch(
    image: NDArray[np.uint8], state: NDArray[np.float32], instruction: Sequence[str], length: int = 8
) -> Batch:
    """Make a policy's inputs from images (B, 64, 64, 3), states (B, 3) and B sentences.

    Both training and the robot convert observations here, because two separate conversions would diverge over time.
    """
    input_ids, attention_mask = tokenize(instruction, length)
    return {
        "pixel_values": normalize_pixels(torch.from_numpy(image)),
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "state": torch.from_numpy(state),
    }


def batches(frames: Frames, batch_size: int, steps: int, seed: int) -> Iterator[Batch]:
    """Yield `steps` batches, drawn without replacement until too few frames for a batch are left."""
    if len(frames) < batch_size:
        raise ValueError(
            f"A batch of {batch_size} needs as many frames, and there are {len(frames)}: "
            "draw more frames or use a smaller batch."
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(frames))
    for _ in range(steps):
        if len(order) < batch_size:
            order = rng.permutation(len(frames))
        yield collate(frames, order[:batch_size])
        order = order[batch_size:]


@dataclass(frozen=True)
class Moments:
    """N tables, each with an arm and an instruction, from which frames are rendered."""

    blocks: NDArray[np.float64]
    """(N, 3, 2) metres."""
    colours: NDArray[np.int64]
    """(N, 3)."""
    target: NDArray[np.int64]
    """(N,): which block the instruction names."""
    instruction: tuple[str, ...]
    arm: NDArray[np.float64]
    """(N, 2) metres."""
    gripper: NDArray[np.float64]
    """(N,)."""

    @property
    def target_block(self) -> NDArray[np.float64]:
        """The position of the named block, (N, 2) metres."""
        return self.blocks[np.arange(len(self.target)), self.target]

    def images(self) -> NDArray[np.uint8]:
        """The camera images, (N, 64, 64, 3)."""
        return camera_images(self.blocks, self.colours, self.arm, self.gripper)

    def state(self) -> NDArray[np.float32]:
        """Proprioception, (N, 3)."""
        return np.concatenate([self.arm, self.gripper[:, None]], axis=1).astype(np.float32)


def sample_moments(rng: np.random.Generator, count: int) -> Moments:
    """Draw tables, instructions and arms: half of the arms anywhere, half near the named block."""
    tables = -(-count // BLOCKS_ON_TABLE)
    blocks, colours = (np.repeat(array, BLOCKS_ON_TABLE, axis=0)[:count] for array in sample_layouts(rng, tables))
    target = rng.random((tables, BLOCKS_ON_TABLE)).argsort(axis=1).reshape(-1)[:count]  # each block named once a table
    rows = np.arange(count)
    template = rng.integers(len(INSTRUCTION_TEMPLATES), size=count)
    instruction = tuple(
        INSTRUCTION_TEMPLATES[which].format(colour=COLOURS[colour])
        for which, colour in zip(template, colours[rows, target], strict=True)
    )
    near = np.clip(blocks[rows, target] + rng.normal(0, _NEAR_SPREAD, (count, 2)), 0.0, 1.0)
    arm = np.where(rng.random((count, 1)) < _NEAR_FRACTION, near, rng.uniform(0.02, 0.98, (count, 2)))
    # The gripper cannot be closed within reach of a block: the episode would have ended there.
    reachable = np.linalg.norm(blocks - arm[:, None], axis=-1).min(axis=1) < GRASP_RADIUS
    gripper = np.where(~reachable & (rng.random(count) < _CLOSED_FRACTION), CLOSED, OPEN)
    return Moments(blocks, colours, target, instruction, arm, gripper)


def _expert_chunks(
    arm: NDArray[np.float64], block: NDArray[np.float64], horizon: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The expert's next actions (N, H, 3), and which of them come after the episode's end (N, H)."""
    action = np.empty((len(arm), horizon, 3), np.float32)
    is_pad = np.zeros((len(arm), horizon), bool)
    for step in range(horizon):
        action[:, step] = expert_action(arm, block)
        if step:
            is_pad[:, step] = action[:, step - 1, 2] > 0
            action[is_pad[:, step], step] = action[is_pad[:, step], step - 1]
        arm = np.clip(arm + action[:, step, :2], 0.0, 1.0)
    return action, is_pad

"""The task: a camera looks down on a table, an instruction names a coloured block, the arm goes there and closes.

The smallest task that still needs all parts of a vision-language-action policy. Blocks of three of four colours lie on
the table, so the image is needed; any of the three may be named, so the instruction is needed; the arm is three pixels
wide in the image, so its own position (proprioception) is useful; and the gripper must close within 7 cm of the block,
so small errors matter.

Notable choices
- The table is the unit square, x to the right and y down, as in images. Positions in metres, one action at most 0.1 m.
- Each block lies inside one cell of a 4 × 4 grid, up to three pixels off its centre: it never spans two vision
  patches. With free positions the same policy did not learn in 400 steps. On the grid it does, and the labs are about
  debugging, not about vision.
- Closing the gripper at any block ends the episode, without a reward if it is the wrong one: a policy that ignores the
  instruction succeeds one time in three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from labs.vla.language import COLOURS, INSTRUCTION_TEMPLATES

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMAGE_SIZE = 64
BLOCKS_ON_TABLE = 3
MAX_STEP = 0.1
"""The largest movement along each axis in one action, in metres."""
GRASP_RADIUS = 0.07
"""The largest distance in metres between gripper and block at which closing grasps the block."""
EPISODE_STEPS = 20

OPEN, CLOSED = -1.0, 1.0
ACTION_LOW = np.array([-MAX_STEP, -MAX_STEP, OPEN], np.float32)
ACTION_HIGH = np.array([MAX_STEP, MAX_STEP, CLOSED], np.float32)

TABLE_RGB = (200, 200, 200)
COLOUR_RGB = np.array([(220, 40, 40), (40, 180, 60), (50, 80, 230), (235, 210, 40)], np.uint8)

GRID_CELLS = 4
_CELL_PIXELS = IMAGE_SIZE // GRID_CELLS
_JITTER_PIXELS = 3
_BLOCK_HALF_PIXELS = 4
_ARM_HALF_PIXELS = 1


class Tabletop(gymnasium.Env[dict[str, Any], "NDArray[np.float32]"]):
    """Reach the block that the instruction names, and close the gripper there.

    Observation: `image` uint8 (64, 64, 3) RGB; `state` float32 (3,), the arm's x and y and the gripper (-1 open, +1
    closed); `instruction`, text. Action: float32 (3,), dx and dy in metres within ±0.1 and the gripper in [-1, 1],
    where above 0 closes. Reward 1 for closing at the named block, else 0. Terminates when the gripper closes within
    reach of any block, is truncated after `max_steps`. `info` holds `success`, `wrong_block` and `distance` (metres to
    the named block).
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(self, render_mode: str | None = None, max_steps: int = EPISODE_STEPS) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"Tabletop cannot render in mode {render_mode!r}: use render_mode='rgb_array', or None.")
        self.render_mode = render_mode
        self.max_steps = max_steps
        self.action_space = spaces.Box(ACTION_LOW, ACTION_HIGH, dtype=np.float32)
        self.observation_space = spaces.Dict(
            image=spaces.Box(0, 255, (IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8),
            state=spaces.Box(np.array([0, 0, OPEN], np.float32), np.array([1, 1, CLOSED], np.float32)),
            instruction=spaces.Text(max_length=64, charset="abcdefghijklmnopqrstuvwxyz "),
        )
        self.scene: Scene
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Draw a new table; `options={"scene": scene}` starts from a given one instead."""
        super().reset(seed=seed)
        given = (options or {}).get("scene")
        self.scene = given if given is not None else Scene.sample(self.np_random)
        self._steps = 0
        return self.scene.observation(), self._info()

    def step(self, action: NDArray[np.float32]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Move, then close or open the gripper: it closes at the arm's new position."""
        action = np.asarray(action, np.float64)
        if action.shape != (3,) or not np.isfinite(action).all():
            raise ValueError(
                f"Tabletop.step was given the action {action.tolist()}. It expects three finite numbers: dx, dy and "
                "gripper. Look at what the policy predicted before this step."
            )
        move = np.clip(action[:2], -MAX_STEP, MAX_STEP)
        gripper = CLOSED if action[2] > 0 else OPEN
        self.scene = replace(self.scene, arm=np.clip(self.scene.arm + move, 0.0, 1.0), gripper=gripper)
        self._steps += 1
        info = self._info()
        terminated = info["success"] or info["wrong_block"]
        return self.scene.observation(), float(info["success"]), terminated, self._steps >= self.max_steps, info

    def render(self) -> NDArray[np.uint8] | None:
        """Draw the table for the viewer, larger and with the instruction: uint8 (432, 384, 3)."""
        if self.render_mode is None:
            return None
        from labs.vla.picture import draw_scene  # Pillow is needed for rendering only, not for training

        return draw_scene(self.scene)

    def _info(self) -> dict[str, Any]:
        held = self.scene.held_block()
        return {
            "success": held == self.scene.target,
            "wrong_block": held is not None and held != self.scene.target,
            "distance": float(self.scene.distances()[self.scene.target]),
        }


@dataclass(frozen=True)
class Scene:
    """One table: the blocks, the arm and the instruction."""

    blocks: NDArray[np.float64]
    """Block centres, (3, 2), x and y in metres."""
    colours: NDArray[np.int64]
    """Index into `COLOURS` of each block, (3,)."""
    target: int
    """Which of the three blocks the instruction names."""
    instruction: str
    arm: NDArray[np.float64]
    """Gripper position, (2,), metres."""
    gripper: float = OPEN

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Scene:
        """Draw a table with three blocks of different colours, one of them named, and an open gripper at random."""
        blocks, colours = sample_layouts(rng, 1)
        target = int(rng.integers(BLOCKS_ON_TABLE))
        template = INSTRUCTION_TEMPLATES[int(rng.integers(len(INSTRUCTION_TEMPLATES)))]
        instruction = template.format(colour=COLOURS[colours[0, target]])
        return cls(blocks[0], colours[0], target, instruction, arm=rng.uniform(0.1, 0.9, 2))

    def observation(self) -> dict[str, Any]:
        """What the robot observes: camera image, proprioceptive state, instruction."""
        gripper = np.array([self.gripper])
        image = camera_images(self.blocks[None], self.colours[None], self.arm[None], gripper)[0]
        state = np.array([*self.arm, self.gripper], np.float32)
        return {"image": image, "state": state, "instruction": self.instruction}

    def distances(self) -> NDArray[np.float64]:
        """Metres from the gripper to each block, (3,)."""
        return np.linalg.norm(self.blocks - self.arm, axis=-1)

    def held_block(self) -> int | None:
        """The block that the closed gripper holds, or None."""
        nearest = int(self.distances().argmin())
        return nearest if self.gripper > 0 and self.distances()[nearest] < GRASP_RADIUS else None


def expert_action(arm: NDArray[np.floating], block: NDArray[np.floating]) -> NDArray[np.float32]:
    """The scripted expert: moves straight to the block at full step, and closes once the remaining distance is short.

    `arm` and `block` are (..., 2) in metres, the result is (..., 3) in action units. It closes at 0.7 of the grasp
    radius, so a policy that imitates it may be off by 2 cm.
    """
    way = np.asarray(block) - np.asarray(arm)  # (..., 2)
    longest = np.abs(way).max(axis=-1, keepdims=True)  # (..., 1)
    move = way * np.minimum(1.0, MAX_STEP / np.maximum(longest, 1e-9))
    close = np.linalg.norm(way, axis=-1, keepdims=True) < 0.7 * GRASP_RADIUS
    return np.concatenate([move, np.where(close, CLOSED, OPEN)], axis=-1).astype(np.float32)


def sample_layouts(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw block centres (N, 3, 2) in metres and their colours (N, 3): different cells, different colours."""
    cells = rng.random((count, GRID_CELLS**2)).argsort(axis=1)[:, :BLOCKS_ON_TABLE]  # (N, 3)
    corner = np.stack([cells % GRID_CELLS, cells // GRID_CELLS], axis=-1) * _CELL_PIXELS
    jitter = rng.integers(-_JITTER_PIXELS, _JITTER_PIXELS + 1, (count, BLOCKS_ON_TABLE, 2))
    blocks = (corner + (_CELL_PIXELS - 1) / 2 + jitter) / (IMAGE_SIZE - 1)
    colours = rng.random((count, len(COLOURS))).argsort(axis=1)[:, :BLOCKS_ON_TABLE]
    return blocks, colours


def camera_images(
    blocks: NDArray[np.floating],
    colours: NDArray[np.integer],
    arm: NDArray[np.floating],
    gripper: NDArray[np.floating],
) -> NDArray[np.uint8]:
    """Camera images: uint8 (N, 64, 64, 3) RGB from blocks (N, 3, 2), colours (N, 3), arm (N, 2), gripper (N,).

    Blocks are 9 × 9 pixels; the gripper is a 3 × 3 mark over them, white while open and black when closed.
    """
    images = np.empty((len(blocks), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
    images[:] = TABLE_RGB
    for index in range(blocks.shape[1]):
        _fill_square(images, blocks[:, index], _BLOCK_HALF_PIXELS, COLOUR_RGB[colours[:, index]])
    mark = np.where(gripper[:, None] > 0, 0, 255).astype(np.uint8)  # (N, 1)
    _fill_square(images, arm, _ARM_HALF_PIXELS, np.repeat(mark, 3, axis=1))
    return images


def _fill_square(images: NDArray[np.uint8], centres: NDArray[np.floating], half: int, rgb: NDArray[np.uint8]) -> None:
    pixels = np.rint(centres * (IMAGE_SIZE - 1)).astype(np.int64)  # (N, 2), x and y
    reach = np.arange(-half, half + 1)
    columns = np.clip(pixels[:, :1] + reach, 0, IMAGE_SIZE - 1)  # (N, W): clipping redraws the border, never wraps
    rows = np.clip(pixels[:, 1:] + reach, 0, IMAGE_SIZE - 1)
    scene = np.arange(len(images))
    images[scene[:, None, None], rows[:, :, None], columns[:, None, :]] = rgb[:, None, None, :]


def stack_observations(observations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Stack single observations: image (B, 64, 64, 3), state (B, 3), instruction a list of B sentences."""
    return {
        "image": np.stack([observation["image"] for observation in observations]),
        "state": np.stack([observation["state"] for observation in observations]),
        "instruction": [observation["instruction"] for observation in observations],
    }


gymnasium.register(id="vla_debug_lab/Tabletop-v0", entry_point="labs.vla.tabletop:Tabletop")

"""Robots whose cameras see a square, a wide or a tall part of the table, and a policy that was trained on all three.

The policy stands for the original implementation that a lab ports: it prepares its images here, without resizing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labs.reference_training import train_step
from labs.rendered_images import rendered_images
from labs.vla.dataset import Batch, Frames, collate, demonstrations
from labs.vla.language import COLOURS, detokenize
from labs.vla.policy import Policy
from labs.vla.rollout import Predict, rollout
from labs.vla.tabletop import COLOUR_RGB, IMAGE_SIZE, Tabletop
from labs.vla.training import learning_rate_at
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

EDGE = 18
"""Rows or columns of the table that a strip leaves out on each side."""
_WHOLE, _STRIP = slice(None), slice(EDGE, IMAGE_SIZE - EDGE)
CAMERAS = {"square": (_WHOLE, _WHOLE), "landscape": (_STRIP, _WHOLE), "portrait": (_WHOLE, _STRIP)}
"""The rows and columns of the table that a camera sees, in pixels of `labs.vla`; it has two pixels for each of them."""
TRAINING_STEPS, ROWS_PER_CAMERA, LEARNING_RATE = 150, 21, 1e-3
_FRAMES = 9600
_IN_VIEW = 50
"""A named block counts as seen if this many of its 81 pixels are in a camera's image."""

Observation = dict[str, Any]
"""`image` uint8 (H, W, 3) or None, `state` float32 (3,) and `instruction`, a sentence."""
Act = Callable[[Sequence[Observation]], Tensor]
"""Observations to action chunks, (B, H, 3) in environment units."""


def seen_by(camera: str, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The camera's images of tables (N, 64, 64, 3): (N, 128, 128, 3), (N, 56, 128, 3) or (N, 128, 56, 3)."""
    rows, columns = CAMERAS[camera]
    return image[:, rows, columns].repeat(2, axis=1).repeat(2, axis=2)


def observations_of(camera: str, frames: Frames) -> list[Observation]:
    """The frames as robots with this camera observe them, without those in which the named block is out of view."""
    chosen = np.flatnonzero(_in_view(camera, frames.image, frames.instruction))
    images = seen_by(camera, frames.image[chosen])
    return [
        {"image": image, "state": frames.state[i], "instruction": frames.instruction[i]}
        for image, i in zip(images, chosen, strict=True)
    ]


def original_base(seed: int) -> Policy:
    """The base with a head drawn from the seed; its tower reads pixels in [-1, 1], as SigLIP's does."""
    return _reads_siglip_pixels(Policy.from_base(seed=seed)).eval()


def original_policy(seed: int, steps: int = TRAINING_STEPS) -> Policy:
    """The original's base, fine-tuned on frames of all three cameras."""
    policy = original_base(seed)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    frames, rng = demonstrations(_FRAMES, seed), np.random.default_rng(seed)
    seen = {camera: np.flatnonzero(_in_view(camera, frames.image, frames.instruction)) for camera in CAMERAS}
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, steps, LEARNING_RATE)
        chosen = {camera: rng.choice(rows, ROWS_PER_CAMERA, replace=False) for camera, rows in seen.items()}
        batch = collate(frames, np.concatenate(list(chosen.values())))
        pixels = [original_pixels(camera, frames.image[rows]) for camera, rows in chosen.items()]
        train_step(policy, optimizer, {**batch, "pixel_values": torch.cat(pixels)})
    return policy.eval()


def exported(policy: Policy) -> dict[str, Tensor]:
    """A policy's weights as the original stores them: a convolution's kernel is (height, width, in, out)."""
    return {
        name: value.permute(2, 3, 1, 0).contiguous() if value.dim() == 4 else value.clone()
        for name, value in policy.state_dict().items()
    }


def original_pixels(camera: str, image: NDArray[np.uint8]) -> Tensor:
    """The original's pixel values (N, 3, 64, 64) for tables (N, 64, 64, 3): what the camera does not see is black."""
    black = np.zeros_like(image)
    rows, columns = CAMERAS[camera]
    black[:, rows, columns] = image[:, rows, columns]
    return torch.from_numpy(black).permute(0, 3, 1, 2).float() / 127.5 - 1


def succeeded(policy: Policy, camera: str, episodes: int, first_seed: int, act: Act | None = None) -> Tensor:
    """Which of the episodes ended with a grasp (N,), of those whose named block the camera sees at the beginning.

    `act` controls the robot; without it, the policy does, with the original's pixel values.
    """
    predict = seen_through(camera, act) if act else as_the_original(policy, camera)
    counts: dict[int, bool] = {}

    def look(row: int, table: Tabletop) -> None:
        if row not in counts:
            seen = table.scene.observation()
            counts[row] = bool(_in_view(camera, seen["image"][None], [seen["instruction"]])[0])

    result = rollout(policy, episodes=episodes, first_seed=first_seed, predict=predict, on_frame=look)
    return torch.from_numpy(result.success[[counts[row] for row in range(episodes)]])


def seen_through(camera: str, act: Act) -> Predict:
    """A controller of observations from this camera as the `predict` of `labs.vla.rollout`."""

    def predict(batch: Batch) -> Tensor:
        rows = zip(seen_by(camera, _tables(batch)), batch["state"].numpy(), detokenize(batch["input_ids"]), strict=True)
        return act([{"image": image, "state": state, "instruction": said} for image, state, said in rows])

    return predict


def as_the_original(policy: Policy, camera: str) -> Predict:
    """The policy with the original's pixel values for this camera."""
    return lambda batch: policy.predict({**batch, "pixel_values": original_pixels(camera, _tables(batch))})


def _tables(batch: Batch) -> NDArray[np.uint8]:
    """The images (B, 64, 64, 3) of the whole table that `labs.vla.rollout` has normalised."""
    return rendered_images(batch["pixel_values"]).numpy()


def _in_view(camera: str, image: NDArray[np.uint8], instruction: Sequence[str]) -> NDArray[np.bool_]:
    """Whether a camera sees the block that the instruction names, (N,)."""
    rows, columns = CAMERAS[camera]
    named = [next(i for i, colour in enumerate(COLOURS) if colour in said.split()) for said in instruction]
    pixels = (image[:, rows, columns] == COLOUR_RGB[named][:, None, None]).all(axis=-1)
    return pixels.sum(axis=(1, 2)) >= _IN_VIEW


def _reads_siglip_pixels(policy: Policy) -> Policy:
    """Rescale the patch embedding: pixels in [-1, 1] give what pixels with the tabletop's statistics gave before."""
    patches = next(module for module in policy.vision.modules() if isinstance(module, nn.Conv2d))
    assert patches.bias is not None
    with torch.no_grad():
        patches.bias += patches.weight.sum(dim=(1, 2, 3)) * (0.5 - PIXEL_MEAN) / PIXEL_STD
        patches.weight /= 2 * PIXEL_STD
    return policy

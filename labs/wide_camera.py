"""A camera that sees more of the table than the arm reaches, for labs that prepare its images themselves.

The arm's part of the table, 64 × 64 pixels, is in the middle of the image; around it is empty table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from labs.rendered_images import rendered_images
from labs.vla.dataset import Batch, Frames, demonstrations
from labs.vla.language import detokenize
from labs.vla.rollout import Predict
from labs.vla.tabletop import IMAGE_SIZE, TABLE_RGB

CAMERA_SIZE = 80

Observation = dict[str, Any]
"""`image` uint8 (80, 80, 3), `state` float32 (3,) and `instruction`, a sentence."""
Act = Callable[[Sequence[Observation]], Tensor]
"""Raw observations to action chunks, (B, H, 3) in environment units."""


def wide_demonstrations(count: int, seed: int, horizon: int = 4) -> Frames:
    """The demonstrations of `labs.vla`, seen by the wide camera: images (N, 80, 80, 3)."""
    frames = demonstrations(count, seed, horizon)
    return replace(frames, image=seen_wide(frames.image))


def seen_wide(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The images (N, 64, 64, 3) of the arm's part of the table with empty table around it, (N, 80, 80, 3)."""
    wide = np.empty((len(image), CAMERA_SIZE, CAMERA_SIZE, 3), np.uint8)
    wide[:] = TABLE_RGB
    edge = (CAMERA_SIZE - IMAGE_SIZE) // 2
    wide[:, edge : edge + IMAGE_SIZE, edge : edge + IMAGE_SIZE] = image
    return wide


def observations_of(frames: Frames) -> list[Observation]:
    """The frames one by one, as a robot observes them."""
    return [
        {"image": image, "state": state, "instruction": instruction}
        for image, state, instruction in zip(frames.image, frames.state, frames.instruction, strict=True)
    ]


def through_the_wide_camera(act: Act) -> Predict:
    """A controller of raw observations as the `predict` of `labs.vla.rollout`."""

    def predict(batch: Batch) -> Tensor:
        image = seen_wide(rendered_images(batch["pixel_values"]).numpy())
        rows = zip(image, batch["state"].numpy(), detokenize(batch["input_ids"]), strict=True)
        return act([{"image": seen, "state": state, "instruction": said} for seen, state, said in rows])

    return predict

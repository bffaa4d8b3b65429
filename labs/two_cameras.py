"""A table seen by two cameras with different drivers, for labs that take their images from a robot's cameras.

    left camera, (64, 32, 3)          right camera, (64, 32, 3)
    the left half of the table        the right half
    channels blue, green, red         channels red, green, blue

The robot, the state and the task are those of `labs.vla`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from labs.rendered_images import rendered_images
from labs.vla.dataset import Batch
from labs.vla.language import detokenize
from labs.vla.rollout import Predict
from labs.vla.tabletop import IMAGE_SIZE

Images = dict[str, NDArray[np.uint8]]
"""For each camera, N images (N, H, W, 3)."""
Act = Callable[[Images, NDArray[np.float32], Sequence[str]], Tensor]
"""What the drivers deliver, states (B, 3) and B instructions, to action chunks (B, H, 3) in environment units."""


def as_delivered(image: NDArray[np.uint8]) -> Images:
    """What the drivers deliver for tables of these colours, RGB (N, 64, 64, 3).

    The left one is a webcam read with OpenCV, whose images are BGR; the right one is configured for RGB.
    """
    middle = IMAGE_SIZE // 2
    return {"left": image[:, :, :middle, ::-1].copy(), "right": image[:, :, middle:].copy()}


def through_two_cameras(act: Act) -> Predict:
    """A controller of what the drivers deliver as the `predict` of `labs.vla.rollout`."""

    def predict(batch: Batch) -> Tensor:
        image = rendered_images(batch["pixel_values"]).numpy()
        return act(as_delivered(image), batch["state"].numpy(), detokenize(batch["input_ids"]))

    return predict

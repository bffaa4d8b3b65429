"""The images that `labs.vla` has normalised, for labs with cameras of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.vla.vision import PIXEL_MEAN, PIXEL_STD


def rendered_images(pixel_values: Tensor) -> Tensor:
    """The uint8 images (N, H, W, 3) whose pixel values (N, 3, H, W) these are."""
    pixels = 255 * (pixel_values * PIXEL_STD + PIXEL_MEAN)
    return pixels.round().to(torch.uint8).permute(0, 2, 3, 1)

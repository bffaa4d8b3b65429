"""How lab 31's docstring prepares images, for its checks: the reference, and what else the pixels may turn out to be.

The reference copies the resized image into a square that is black already, and so needs no padding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng
from labs.invariants import relative_error

ROUNDING = 3e-5
"""Relative to the size of the values; on 40 seeds a correct fix came to 8e-6."""
LIKENESS = 1e-4

TASKS = ["go to red", "reach the blue block", "go to green", "please reach the yellow block now"]
OTHER_TASKS = ["go to blue", "reach the green block", "go to yellow", "please reach the red block now"]
"""Tasks of the same lengths, with other colours."""

Prepare = Callable[[Tensor, int], Tensor]
"""An image uint8 (H, W, 3) and the tower's size, to (3, size, size)."""


def letterboxed(image: Tensor, size: int) -> Tensor:
    """The reference."""
    return on_a_square_of(-1.0, 2 * resized(image, size) - 1, size)


def resized(image: Tensor, size: int) -> Tensor:
    """The image in [0, 1], (3, h, w), its longer side `size`."""
    return scaled_to(image, *_inside(image, size))


def scaled_to(image: Tensor, height: int, width: int) -> Tensor:
    """The image in [0, 1], (3, height, width)."""
    pixels = image.permute(2, 0, 1).double()[None] / 255
    return F.interpolate(pixels, (height, width), mode="bilinear")[0]


def on_a_square_of(value: float, pixels: Tensor, size: int) -> Tensor:
    """Pixels (3, h, w) in the middle of a square (3, size, size) of one value."""
    square = torch.full((3, size, size), value, dtype=pixels.dtype)
    square[border(pixels.shape[1], pixels.shape[2], size).logical_not().expand_as(square)] = pixels.flatten()
    return square


def border(height: int, width: int, size: int) -> Tensor:
    """Which pixels of a square are beside an image in its middle, (size, size)."""
    top, left = (size - height) // 2, (size - width) // 2
    beside = torch.ones(size, size, dtype=torch.bool)
    beside[top : top + height, left : left + width] = False
    return beside


def bars(image: Tensor, size: int) -> Tensor:
    """Which pixels of the prepared square are padding, (size, size)."""
    return border(*_inside(image, size), size)


def standardised(image: Tensor, size: int) -> Tensor:
    """Each image with mean 0 and standard deviation 1."""
    pixels = letterboxed(image, size)
    return (pixels - pixels.mean()) / pixels.std()


def rescaled(image: Tensor, size: int) -> Tensor:
    """The pixels as shipped, their smallest and largest value mapped to -1 and 1."""
    pixels = on_a_square_of(-1.0, resized(image, size), size)
    return 2 * (pixels - pixels.min()) / (pixels.max() - pixels.min()) - 1


FORMULAS: dict[str, Prepare] = {
    "letterboxed": letterboxed,
    "grey_bars": lambda image, size: on_a_square_of(0.0, 2 * resized(image, size) - 1, size),
    "stretched": lambda image, size: 2 * scaled_to(image, size, size) - 1,
    "unscaled": lambda image, size: on_a_square_of(-1.0, resized(image, size), size),
    "rescaled": rescaled,
    "standardised": standardised,
}
"""The first that fits counts: if nothing is resized, the largest value of a random image is 1, and two are the same."""


def explain(found: object, image: Tensor, size: int) -> str:
    """The formula that gives the pixels that were found."""
    if not isinstance(found, Tensor) or found.shape != (3, size, size) or not found.isfinite().all():
        return "another"
    fits = (name for name, formula in FORMULAS.items() if _like(found.double(), formula(image, size)))
    return next(fits, "another")


def random_image(rng: Rng, height: int, width: int) -> Tensor:
    """An image uint8 (height, width, 3) with black and white in it."""
    image = rng.integers(0, 256, height, width, 3).to(torch.uint8)
    image[0, 0], image[-1, -1] = 0, 255
    return image


def _like(found: Tensor, wanted: Tensor) -> bool:
    return relative_error(found, wanted) < LIKENESS


def _inside(image: Tensor, size: int) -> tuple[int, int]:
    height, width, _ = image.shape
    longer = max(height, width)
    return height * size // longer, width * size // longer

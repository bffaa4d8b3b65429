"""What two cameras see, in the checks of a lab: random images and blocks, and in words how an image was changed.

An image of the whole table is RGB, uint8 (N, H, W, 3); the left camera sees its left half, and the right one the right.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from labs.grading import Rng
from labs.vla.dataset import Frames
from labs.vla.language import COLOURS, INSTRUCTION_TEMPLATES
from labs.vla.tabletop import COLOUR_RGB, TABLE_RGB
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

SIDES = ("left", "right")
ORDERS = {"left": "bgr", "right": "rgb"}
"""The order of the channels that each camera's driver delivers."""
SAME, EXCHANGED, GREY, OTHER = "as the camera saw it", "red and blue exchanged", "grey", "another image"
FLIPS = {"upside down": 1, "mirrored": 2, "with the moments in reverse": 0}
"""The axis of (N, H, W, 3) that was reversed."""
ROUNDING = 1e-3
BLOCK = 9


def random_tables(rng: Rng, count: int, height: int, width: int) -> Tensor:
    """Images in which all pixels differ."""
    return rng.integers(0, 256, count, height, width, 3).to(torch.uint8)


def one_block(rng: Rng, side: str, colour: int, size: int = 64) -> tuple[Tensor, tuple[int, int]]:
    """A table (1, size, size, 3) with one block in a camera's half, and the row and column of its middle."""
    table = torch.tensor(TABLE_RGB, dtype=torch.uint8).expand(1, size, size, 3).clone()
    row, column = rng.integer(0, size - BLOCK), rng.integer(0, size // 2 - BLOCK) + size // 2 * (side == "right")
    table[:, row : row + BLOCK, column : column + BLOCK] = torch.from_numpy(COLOUR_RGB[colour])
    return table, (row + BLOCK // 2, column + BLOCK // 2)


def halves(table: Tensor) -> dict[str, Tensor]:
    """The part of each camera, along the axis before the last."""
    middle = table.shape[-2] // 2
    return {"left": table[..., :middle, :], "right": table[..., middle:, :]}


def delivered(table: Tensor) -> dict[str, Tensor]:
    """What the drivers of the two cameras deliver."""
    return {side: view.flip(-1) if ORDERS[side] == "bgr" else view.clone() for side, view in halves(table).items()}


def random_moments(rng: Rng, count: int, horizon: int = 4) -> dict[str, Any]:
    """The rest of a recording."""
    sentences = [rng.choice(INSTRUCTION_TEMPLATES).format(colour=rng.choice(COLOURS)) for _ in range(count)]
    return {
        "state": rng.uniform(count, 3),
        "instruction": sentences,
        "action": rng.uniform(count, horizon, 3, low=-0.1, high=0.1),
        "action_is_pad": rng.integers(1, horizon + 1, count)[:, None] <= torch.arange(horizon)[None],
    }


def png_files(table: Tensor) -> dict[str, list[Tensor]]:
    """PNG files of both cameras' views, as another program writes them."""
    return {side: [_png(image) for image in view] for side, view in halves(table).items()}


def in_a_viewer(file: Tensor) -> tuple[str, Tensor]:
    """The format of a file and the RGB image that any viewer shows, or an empty one if it is no image."""
    try:
        with Image.open(io.BytesIO(file.numpy().tobytes())) as image:
            return str(image.format), torch.from_numpy(np.array(image.convert("RGB")))
    except (OSError, ValueError):
        return "no image", torch.zeros(0, 0, 3, dtype=torch.uint8)


def normalized(table: Tensor) -> Tensor:
    """The pixel values (N, 3, H, W) of RGB images."""
    return (table.permute(0, 3, 1, 2).float() / 255 - PIXEL_MEAN) / PIXEL_STD


def denormalized(pixel_values: Tensor) -> Tensor:
    """The images (N, H, W, 3) of pixel values, floats from 0 to 255."""
    return 255 * (pixel_values.permute(0, 2, 3, 1).float() * PIXEL_STD + PIXEL_MEAN)


def how(found: Tensor, seen: Tensor) -> str:
    """In words, how images (N, H, W, 3) differ from what the camera saw."""
    if found.shape != seen.shape:
        return OTHER
    found, seen = found.float(), seen.float()
    for order, image in ((SAME, seen), (EXCHANGED, seen.flip(-1))):
        if near(found, image):
            return order
        for flip, axis in FLIPS.items():
            if near(found, image.flip(axis)):
                return flip if order == SAME else f"{order}, {flip}"
    is_grey = near(found, found.mean(dim=-1, keepdim=True).expand_as(found))
    return GREY if is_grey and not near(seen, seen.mean(dim=-1, keepdim=True).expand_as(seen)) else OTHER


def near(found: Tensor, wanted: Tensor) -> bool:
    """Equal up to rounding."""
    return bool((found - wanted).norm() <= ROUNDING * wanted.norm())


def each_half(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What each camera contributed to a policy's input, as images (N, H, W, 3)."""
    return halves(denormalized(batch["pixel_values"]))


def shown(files: list[Tensor]) -> Tensor:
    """What a viewer shows of files, (N, H, W, 3), or nothing if they differ in size."""
    images = [in_a_viewer(file)[1] for file in files]
    same = len({image.shape for image in images}) == 1
    return torch.stack(images) if same else torch.zeros(0)


def as_frames(plain: Mapping[str, Any]) -> Frames:
    """Frames from what a probe returned."""
    arrays = {name: plain[name].numpy() for name in ("image", "state", "action", "action_is_pad")}
    return Frames(instruction=tuple(plain["instruction"]), **arrays)


def change(weights: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> Tensor:
    """How far the weights have moved, as one vector."""
    return torch.cat([(weights[name] - start[name]).flatten().float() for name in sorted(start)])


def facts(evidence: Mapping[str, Any], what: str) -> dict[str, set[str]]:
    """For each camera, in words, how its half of something differed, over all sizes."""
    found = {}
    for side in SIDES:
        prefix = f"test_every_pixel_is_as_seen/the {side} camera's half of {what}, for"
        found[side] = {str(value) for name, value in evidence.items() if name.startswith(prefix)}
    return found


def is_all(evidence: Mapping[str, Any], word: str, *paths: str) -> bool:
    """Whether both cameras' halves of all these are so."""
    return all(found == {word} for path in paths for found in facts(evidence, path).values())


def of_one_camera(evidence: Mapping[str, Any], path: str) -> bool:
    """Whether red and blue are exchanged for one camera only."""
    left, right = facts(evidence, path).values()
    return (left, right) in (({SAME}, {EXCHANGED}), ({EXCHANGED}, {SAME}))


def _png(image: Tensor) -> Tensor:
    file = io.BytesIO()
    Image.fromarray(image.contiguous().numpy()).save(file, "PNG")
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)

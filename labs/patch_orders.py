"""Orders in which an image can be cut into patches, and where each number of a row is from: for lab 07's checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng
from labs.invariants import close


def numbered_images(rng: Rng, *shape: int) -> Tensor:
    """Images of the shape (B, C, H, W) in which no two numbers are the same: 0, 1, 2, … in random order."""
    return rng.permutation(torch.Size(shape).numel()).float().view(shape)


def cut(images: Tensor, size: int) -> Tensor:
    """The reference: one patch after the other, in reading order, (B, P, C·size·size)."""
    corners = [(y, x) for y in range(0, images.shape[2], size) for x in range(0, images.shape[3], size)]
    return torch.stack([images[:, :, y : y + size, x : x + size].flatten(1) for y, x in corners], dim=1)


def numbers(rows: Tensor) -> str:
    """The numbers of the rows that are true, or how many there are."""
    found = rows.nonzero()[:, 0].tolist()
    return ", ".join(map(str, found)) if 0 < len(found) < 5 else f"{len(found)} rows"


def misplaced(rows: Tensor, images: Tensor, size: int) -> str:
    """The first row of `numbered_images` with numbers of another place than its patch, in words, or "nothing"."""
    frames, channels, patches = _sources(rows, images, size)[:3]
    own_frame = torch.arange(rows.shape[0])[:, None, None]
    own_patch = torch.arange(rows.shape[1])[None, :, None]
    wrong = ((frames != own_frame) | (patches != own_patch)).any(dim=2)
    if not wrong.any():
        return "nothing"
    frame, row = (int(index) for index in wrong.nonzero()[0])
    if (frames[frame, row] < 0).any():
        return f"row {row} holds numbers that are not in the image"
    if (frames[frame, row] != frame).any():
        return f"row {row} holds pixels of another image of the batch"
    what, where = (_listed(values[frame, row].unique().tolist()) for values in (channels, patches))
    return f"row {row} holds channels {what} of patches {where}"


def in_another_order(rows: Tensor, images: Tensor, size: int) -> str:
    """The first number of a row of `numbered_images` that is not in its place, in words, or "nothing"."""
    differ = rows != cut(images, size)
    if not differ.any():
        return "nothing"
    frame, row, number = (int(index) for index in differ.nonzero()[0])
    _, channel, _, down, across = (int(values[frame, row, number]) for values in _sources(rows, images, size))
    return f"number {number} of row {row} is channel {channel}, y {down}, x {across} of its patch"


def orders_of(rows: Any, images: Tensor, size: int) -> list[str]:
    """The names in `ORDERS` that explain the rows; several are the same for one channel or one patch."""
    if not isinstance(rows, Tensor):
        return []
    values = {name: order(images, size) for name, order in ORDERS.items()}
    return [name for name, value in values.items() if rows.shape == value.shape and close(rows, value)]


def _cut_along_columns(images: Tensor, size: int) -> Tensor:
    """The patches of the left edge from top to bottom, then those beside them."""
    grid = cut(images, size).unflatten(1, (images.shape[2] // size, images.shape[3] // size))
    return grid.transpose(1, 2).flatten(1, 2)


def _cut_into(images: Tensor, size: int, axes: tuple[int, int, int]) -> Tensor:
    """The patches in reading order, each with its channels, rows and columns in another order."""
    windows = cut(images, size).unflatten(2, (images.shape[1], size, size))
    return windows.permute(0, 1, *(2 + axis for axis in axes)).flatten(2)


def _cut_with_exchanged_counts(images: Tensor, size: int) -> Tensor:
    """As if the image had as many rows of patches as it has columns."""
    frames, channels, height, width = images.shape
    return cut(images.reshape(frames, channels, width, height), size)


def _cut_into_thumbnails(images: Tensor, size: int) -> Tensor:
    """Every n-th pixel in both directions, from each of the first pixels."""
    down, across = images.shape[2] // size, images.shape[3] // size
    starts = [(y, x) for y in range(down) for x in range(across)]
    return torch.stack([images[:, :, y::down, x::across].flatten(1) for y, x in starts], dim=1)


ORDERS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "reading_order": cut,
    "square_images_only": _cut_with_exchanged_counts,
    "columns_first": _cut_along_columns,
    "channels_last": lambda images, size: _cut_into(images, size, (1, 2, 0)),
    "mirrored_at_the_diagonal": lambda images, size: _cut_into(images, size, (0, 2, 1)),
    "thumbnails": _cut_into_thumbnails,
}


def _sources(rows: Tensor, images: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """For each number of the rows: its image (-1 if there is none), channel, patch, and row and column in the patch."""
    place = images.flatten().argsort()  # the number n is at place[n]
    known = (rows == rows.round()) & (rows >= 0) & (rows < len(place))
    flat = place[torch.where(known, rows, 0.0).long()]
    frame, channel, y, x = torch.unravel_index(flat, images.shape)
    patch = images.shape[3] // size * (y // size) + x // size
    return torch.where(known, frame, -1), channel, patch, y % size, x % size


def _listed(numbers: list[int]) -> str:
    """The first numbers in brackets: `[0, 1, 2]`."""
    return str(numbers) if len(numbers) < 5 else f"[{', '.join(map(str, numbers[:3]))}, …]"

"""Grids of images, without the frame between them."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor


def make_grid(tensor: Tensor, nrow: int = 8, **_options: Any) -> Tensor:
    """The images side by side, `nrow` in a row; what is missing in the last row is black."""
    images = tensor.detach()
    missing = -len(images) % nrow
    images = torch.cat([images, images.new_zeros(missing, *images.shape[1:])])
    rows = [torch.cat(list(row), dim=2) for row in images.split(nrow)]
    return torch.cat(rows, dim=1)


def save_image(tensor: Tensor, path: str, nrow: int = 8, **_options: Any) -> None:
    """Write the grid as a PNG file."""
    grid = make_grid(tensor, nrow).clamp(0, 1).mul(255).byte().permute(1, 2, 0).cpu().numpy()
    Image.fromarray(grid.squeeze()).save(path)

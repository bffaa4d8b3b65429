"""A policy ported to PyTorch, with the original's weights, for robots with any camera.

    image (H, W, 3) ── resize ── pad ── scale ── pixel_values (B, 3, 64, 64) ┐
    instruction, a sentence ── tokens ────────── input_ids (B, L)             ├── policy ── actions
    state (3,) ───────────────────────────────── state (B, 3)                 ┘

Notable choices
- The vision tower is SigLIP's, and reads pixels from -1, black, to 1, white.
- An image is not distorted: its longer side gets the tower's size and the shorter one its share of that, rounded down.
  The resized image is in the middle of a black square; where that leaves half a pixel, it is nearer to the top left.
- A camera sometimes loses a frame. The policy then sees a black image.
- Robots with different cameras share a batch, so images are prepared one by one.
- The original stores a convolution's kernel as (height, width, in, out), PyTorch as (out, in, height, width). All other
  tensors are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from labs.vla.dataset import Batch
from labs.vla.language import tokenize
from labs.vla.policy import Policy

BLACK = -1.0
SIZE = 64
"""Height and width of the images that the vision tower reads."""


def load_port(weights: Mapping[str, Tensor]) -> Policy:
    """The policy with the original's weights, in evaluation mode."""
    policy = Policy().eval()
    policy.load_state_dict({name: to_pytorch(value) for name, value in weights.items()})
    return policy


def to_pytorch(value: Tensor) -> Tensor:
    """One tensor of the original in PyTorch's layout."""
    return value.permute(3, 2, 0, 1) if value.dim() == 4 else value


def prepare_batch(observations: Sequence[Mapping[str, Any]]) -> Batch:
    """A policy's input from observations: an `image` uint8 (H, W, 3) or None, a `state` (3,) and an `instruction`."""
    input_ids, attention_mask = tokenize([seen["instruction"] for seen in observations])
    return {
        "pixel_values": torch.stack([prepare_image(seen["image"]) for seen in observations]),
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "state": torch.from_numpy(np.stack([seen["state"] for seen in observations])),
    }


def prepare_image(image: NDArray[np.uint8] | None, size: int = SIZE) -> Tensor:
    """A camera's image (H, W, 3) as the vision tower reads it, (3, size, size); None is a frame that was lost."""
    if image is None:
        return torch.full((3, size, size), BLACK)
    pixels = torch.from_numpy(image).permute(2, 0, 1).float() / 255  # (3, H, W)
    return 2 * resize_with_pad(pixels, size) - 1


def resize_with_pad(pixels: Tensor, size: int) -> Tensor:
    """Pixels (3, H, W) in the middle of a square, (3, size, size)."""
    longer = max(pixels.shape[1:])
    height, width = (side * size // longer for side in pixels.shape[1:])
    resized = F.interpolate(pixels[None], (height, width), mode="bilinear")[0]
    top, left = (size - height) // 2, (size - width) // 2
    return F.pad(resized, (left, size - width - left, top, size - height - top), value=BLACK)


def act(policy: Policy, observations: Sequence[Mapping[str, Any]]) -> Tensor:
    """The next actions of each robot, (B, H, 3)."""
    return policy.predict(prepare_batch(observations))

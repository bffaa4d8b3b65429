"""From a camera's pictures to the policy's input.

No two cameras of the cell are alike. A picture is therefore made independent of its camera's gain and offset before the
policy sees it, in training and on the arm.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SMALLEST_STD = 1e-3
"""Of a channel in [0, 1]. The camera of a covered lens gives a constant picture, which becomes zeros."""


def standardize(images: NDArray[np.uint8]) -> Tensor:
    """Pictures uint8 (B, H, W, 3) as `pixel_values` float32 (B, 3, H, W).

    Each channel of each picture has mean 0 and standard deviation 1.
    """
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    std, mean = torch.std_mean(pixels, dim=(0, 2, 3), keepdim=True, correction=0)
    return (pixels - mean) / std.clamp(min=SMALLEST_STD)

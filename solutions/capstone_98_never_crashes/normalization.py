"""Statistics of a station's actions, and the two directions between its units and the numbers that the head predicts.

Every station has its own: one controller takes metres, another one centimetres. The policy predicts the same numbers
for both.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labs.vla.dataset import Frames


class StationStatistics(nn.Module):
    """Mean and standard deviation of each action dimension at one station, saved with the policy.

    `normalize` is `(action - mean) / std`, and `unnormalize` is its inverse, both on (..., A). A dimension that does
    not move in the station's frames has no scale of its own: its `std` is 1, so a reading that is a little off stays a
    little off.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("std", torch.where(std > 0, std, torch.ones_like(std)).float())

    @classmethod
    def of(cls, frames: Frames) -> Self:
        """The statistics of a station's frames, without padded steps."""
        rows: NDArray[np.float64] = frames.action[~frames.action_is_pad].astype(np.float64)  # (M, A)
        return cls(torch.from_numpy(rows.mean(axis=0)), torch.from_numpy(rows.std(axis=0)))

    def normalize(self, action: Tensor) -> Tensor:
        """The station's units to the head's numbers."""
        return (action - self.mean) / self.std

    def unnormalize(self, action: Tensor) -> Tensor:
        """The head's numbers to the station's units."""
        return action * self.std + self.mean

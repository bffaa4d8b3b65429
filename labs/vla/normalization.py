"""Action statistics: normalise actions in metres for the loss, and convert predictions back.

The only place that converts between the policy's units and the robot's. `unnormalize` is the inverse of `normalize` by
construction, and both read the same two buffers, which are saved in the checkpoint: statistics stored separately from a
model are sooner or later used with another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labs.vla.tabletop import ACTION_HIGH, ACTION_LOW


class ActionStatistics(nn.Module):
    """The affine map between actions in environment units and the numbers that a head predicts.

    `normalize` is `(action - mean) / std`, `unnormalize` its inverse, both on (..., A). The buffers stay float32
    whatever the module is cast to: in bfloat16 the mean alone could be off by 0.4 %, a bias in every action.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        super().__init__()
        mean, std = (torch.as_tensor(values, dtype=torch.float32).clone() for values in (mean, std))
        if mean.shape != std.shape or mean.dim() != 1:
            raise ValueError(f"Action mean and std must be (A,) both, not {tuple(mean.shape)} and {tuple(std.shape)}.")
        if mean.device.type != "meta" and not bool((std > 0).all()):
            constant = (std <= 0).nonzero().flatten().tolist()
            raise ValueError(
                f"Action dimension(s) {constant} have a std of 0, so normalising would divide by zero. "
                "A dimension that never moves needs a std of its own, 1 for example."
            )
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    @classmethod
    def from_actions(cls, action: NDArray[np.floating], action_is_pad: NDArray[np.bool_] | None = None) -> Self:
        """Mean and standard deviation of actions (..., A), without padded steps (...)."""
        rows = action.reshape(-1, action.shape[-1]) if action_is_pad is None else action[~action_is_pad]  # (M, A)
        return cls(torch.from_numpy(rows.mean(axis=0)), torch.from_numpy(rows.std(axis=0)))

    @classmethod
    def tabletop(cls) -> Self:
        """Mean and std of the tabletop's demonstrations, measured over `demonstrations(100_000, 0)`."""
        return cls(TABLETOP_MEAN, TABLETOP_STD)

    @classmethod
    def tabletop_bounds(cls) -> Self:
        """Maps the action space to [-1, 1], for heads with a bounded range."""
        low, high = torch.from_numpy(ACTION_LOW), torch.from_numpy(ACTION_HIGH)
        return cls((low + high) / 2, (high - low) / 2)

    def normalize(self, action: Tensor) -> Tensor:
        """Environment units to normalised, (..., A)."""
        return (action - self.mean) / self.std

    def unnormalize(self, action: Tensor) -> Tensor:
        """Normalised to environment units, (..., A)."""
        return action * self.std + self.mean

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        mean, std = self.mean, self.std
        super()._apply(fn, recurse)
        if not mean.is_meta:
            # `.to(dtype)` has moved and rounded the buffers; keep the new device, restore the values.
            self.mean, self.std = mean.to(self.mean.device), std.to(self.std.device)
        return self


TABLETOP_MEAN = (0.0, 0.0, -0.527)
TABLETOP_STD = (0.0666, 0.0666, 0.849)

"""Turns a policy's normalised actions into the robot's units: the last step before the motors."""

from __future__ import annotations

import torch
from torch import Tensor


def unnormalise(action: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Actions (B, D) in units of standard deviation, as the robot wants them (B, D)."""
    return (action + mean) * std


def normalise(action: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """The robot's actions (B, D) in units of standard deviation (B, D)."""
    return (action - mean) / std.clamp_min(torch.finfo(std.dtype).tiny)

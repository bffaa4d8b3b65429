"""Reading many scalar tensors at once: one transfer, whatever devices they are on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def read_scalars(scalars: Sequence[Tensor], dtype: torch.dtype = torch.float64) -> list[float]:
    """The values of 0-dimensional tensors, converted to `dtype`; waits for the device once."""
    if not scalars:
        return []
    if len({scalar.device for scalar in scalars}) > 1:
        scalars = [scalar.cpu() for scalar in scalars]
    return [float(value) for value in torch.stack([scalar.to(dtype) for scalar in scalars]).tolist()]

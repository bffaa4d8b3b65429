"""How far a sample is from a distribution, or from another sample."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def scaled_distance(probabilities: Tensor) -> float:
    """The Kolmogorov–Smirnov distance, times the root of the sample's size: 1.63 is its 1 % level.

    `probabilities` (N,) are the distribution function's values for the sample, sorted.
    """
    count = len(probabilities)
    ranks = torch.arange(count + 1, dtype=probabilities.dtype, device=probabilities.device) / count
    above, below = ranks[1:] - probabilities, probabilities - ranks[:-1]
    return float(torch.maximum(above, below).max()) * math.sqrt(count)


def distance_between(one: Tensor, other: Tensor) -> float:
    """The Kolmogorov–Smirnov distance of two samples (N,) and (M,): 0 where they are alike, 1 where they are apart."""
    one, other = one.sort().values, other.sort().values
    values = torch.cat([one, other])
    shares = [torch.searchsorted(sample, values, right=True) / len(sample) for sample in (one, other)]
    return float((shares[0] - shares[1]).abs().max())

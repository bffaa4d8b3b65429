"""Tensors by name, as checks compare them: in double precision, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor


def as_double(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The batch with its floating-point values in float64."""
    return {name: values.double() if values.is_floating_point() else values for name, values in batch.items()}


def distance(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> float:
    """The distance of two sets of tensors, relative to the length of `wanted`."""
    apart = sum(float((found[name] - value).double().square().sum()) for name, value in wanted.items())
    return math.sqrt(apart / sum(float(value.double().square().sum()) for value in wanted.values()))

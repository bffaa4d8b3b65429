"""Whether numbers fall or rise by a constant factor per layer along the depth of a stack."""

from __future__ import annotations

import math
from collections.abc import Sequence

STRAIGHT = 0.8
"""The share of the variation of log(value) that a straight line over depth must explain."""


def decades_per_layer(values: Sequence[float]) -> float | None:
    """The slope of log10 over depth; None if the values do not lie on a straight line.

    One odd layer among equal ones (a frozen neighbour, a gate near zero) is not a slope.
    """
    logs = [math.log10(value) for value in values if value > 0 and math.isfinite(value)]
    if len(logs) < len(values) or len(logs) < 3:
        return None
    middle, mean = (len(logs) - 1) / 2, sum(logs) / len(logs)
    spread = sum((place - middle) ** 2 for place in range(len(logs)))
    slope = sum((place - middle) * (log - mean) for place, log in enumerate(logs)) / spread
    variation = sum((log - mean) ** 2 for log in logs)
    if variation == 0:
        return 0.0
    return slope if slope**2 * spread / variation >= STRAIGHT else None

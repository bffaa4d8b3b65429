"""How a change of state and the action beside it are shifted in time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActionLag:
    """Correlations of the state's change over a step with the actions `lag` steps earlier."""

    source: str
    """`batch`, or the loader whose data set was read."""
    steps: int
    lags: tuple[int, ...]
    correlation: tuple[float, ...]
    """For each lag: the mean over dimensions that move."""
    relative: bool
    """Whether the action was taken as a change (True) or as the state to go to."""
    dimensions: int

"""What comes back from normalising and unnormalising values that really occur."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One pair of functions, tried on one tensor of the batch."""

    module: str | None
    """The module that has the pair; None for a declared one."""
    normalise: str
    unnormalise: str
    at: SourceLine | None
    """The first line of the second function."""
    tried_on: str
    """Path in the batch of the values tried, or `standard normal`."""
    error: tuple[float, ...]
    """For each last dimension: largest |unnormalise(normalise(x)) − x| over the range of x."""
    tolerance: float
    gain: tuple[float, ...]
    """For each last dimension: slope of what comes back over x, 1 for an exact inverse; NaN where x is constant."""


@dataclass(frozen=True, slots=True)
class NormaliserRoundTrips:
    """Every pair found."""

    pairs: tuple[RoundTrip, ...]

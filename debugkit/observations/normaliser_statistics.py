"""The statistics that normalisers hold, and what they make of the values they are given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NormaliserStatistics:
    """A location and a spread, side by side on one owner: mean and std, min and max, q01 and q99."""

    module: str
    owner: str
    """Where they are: `action_statistics`, or the class of an object that a module holds."""
    names: tuple[str, str]
    spread: tuple[float, ...]
    """For each dimension: std, or max - min."""
    finite: bool
    reaction: tuple[float, ...] | None
    """How far normalising moves when a dimension leaves its location by 0.01, NaN or inf for a division by zero.

    None where the owner has no method that normalises.
    """


@dataclass(frozen=True, slots=True)
class NormalisedValues:
    """What one normaliser gave in a pass, by dimension."""

    module: str
    owner: str
    rows: int
    median: tuple[float, ...]
    spread: tuple[float, ...]
    """Standard deviation."""
    extreme_share: tuple[float, ...]
    """Share of rows beyond 10."""
    largest: float


@dataclass(frozen=True, slots=True)
class Normalisers:
    """All that were found."""

    statistics: tuple[NormaliserStatistics, ...]
    values: tuple[NormalisedValues, ...]

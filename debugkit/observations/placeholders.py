"""How many places a sequence keeps for image features, and how many features are put there."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class Merge(PlainData):
    """One merge of features (N, D) into the places that a mask marks in embeddings (B, L, D)."""

    operation: str
    places: int
    places_per_sample: tuple[int, ...]
    features: int
    module: str | None
    at: SourceLine | None


@dataclass(frozen=True)
class Placeholders(PlainData):
    """The merges of one step. `in_ids` counts a config's placeholder token in each sample's ids; None without one."""

    merges: tuple[Merge, ...]
    token: str | None = None
    in_ids: tuple[int, ...] | None = None

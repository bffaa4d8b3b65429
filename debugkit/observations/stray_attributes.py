"""Tensors that modules hold and that are neither parameters nor buffers."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class StrayAttribute(PlainData):
    """One such tensor: `path` is the dotted path of the module and then of the attribute, `stats.mean` inside it."""

    module: str
    path: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class StrayAttributes(PlainData):
    """All that a step used as it found them; one that the step put there anew is a cache and not among them."""

    held: tuple[StrayAttribute, ...]

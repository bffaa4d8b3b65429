"""Calls of `load_state_dict(strict=False)`, and what they loaded."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observation import provided_by
from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class StateLoad(PlainData):
    """The last load without `strict` into one module.

    `module` is its class, and `path` its place in the model that trains; None if it has none. `tensors` counts those of
    the state dict, `matched` those that the module has, and `missing` those of the module that it lacks. `names` has
    one name of each, if they do not all match; `renaming` the prefix to replace and what by, so that most match.
    """

    module: str
    path: str | None
    at: SourceLine | None
    tensors: int
    matched: int
    missing: int
    names: tuple[str, str] | None
    renaming: tuple[str, str] | None


@provided_by("debugkit.watch")
@dataclass(frozen=True)
class StateLoads(PlainData):
    """One entry for each module. A module that was loaded again has only its last load."""

    loads: tuple[StateLoad, ...]

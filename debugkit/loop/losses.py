"""The losses that backward() was called on."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observation import provided_by
from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class Loss(PlainData):
    """One scalar loss and its step; a step has several with accumulation or with several losses."""

    step: int
    value: float


@provided_by("debugkit.watch")
@dataclass(frozen=True)
class Losses(PlainData):
    """The first losses of a run and its last ones, oldest first."""

    first: tuple[Loss, ...]
    last: tuple[Loss, ...]

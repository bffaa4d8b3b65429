"""What backward() was called on."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class Loss(PlainData):
    """One scalar, in the step it belongs to; several a step under accumulation or with several losses."""

    step: int
    value: float


@dataclass(frozen=True)
class Losses(PlainData):
    """The last losses of a run, oldest first, and its first ones."""

    first: tuple[Loss, ...]
    last: tuple[Loss, ...]

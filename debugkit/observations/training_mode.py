"""Whether the model was training when it was trained."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class ModeAtStep(PlainData):
    """The flags when an optimizer stepped.

    `sensitive` counts modules that act differently in eval mode, outside parts whose parameters are all frozen.
    """

    step: int
    root_training: bool
    sensitive: int
    sensitive_in_eval: int
    at: SourceLine | None


@dataclass(frozen=True)
class TrainingModes(PlainData):
    """One entry for each change of the flags, in order, the first step's included.

    `steps` were made in all, and `last_step` is the number of the last, as in the entries.
    """

    steps: int
    changes: tuple[ModeAtStep, ...]
    last_step: int = 0

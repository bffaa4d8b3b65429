"""Whether the model was in train mode at the steps of its optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observation import provided_by
from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class ModeAtStep(PlainData):
    """The flags at a step of an optimizer.

    `sensitive` counts modules that behave differently in eval mode, outside parts whose parameters are all frozen. `at`
    is the call of `eval()` if the program has only one, otherwise the step.
    """

    step: int
    root_training: bool
    sensitive: int
    sensitive_in_eval: int
    at: SourceLine | None


@provided_by("debugkit.watch")
@dataclass(frozen=True)
class TrainingModes(PlainData):
    """One entry for the first step and for each change of the flags, in order.

    `steps` is the total number of steps, and `last_step` the number of the last one.
    """

    steps: int
    changes: tuple[ModeAtStep, ...]
    last_step: int = 0

"""What a LightningModule's training_step handed back to the loop that calls backward() for it."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class StepReturns(PlainData):
    """The run so far; calls without gradients enabled are not counted.

    `nothing`: None, or a mapping without a `loss`. `detached`: a loss that no gradient can be taken of, of which
    `returned_as` is the type. `at` is where training_step is defined. `ended` once the loop is over, well or not.
    """

    calls: int
    nothing: int
    detached: int
    returned_as: str
    at: SourceLine | None
    ended: bool

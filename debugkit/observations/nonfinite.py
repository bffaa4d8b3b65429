"""Where the first NaN or Inf of a step was made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData

Source = Literal["operation", "accumulation", "input", "parameter", "unlocated"]
"""operation: made by it. accumulation: by adding finite gradients. input, parameter: already in what the model
was given or holds. unlocated: seen, but the step could not be run again."""


@dataclass(frozen=True)
class Extremes(PlainData):
    """Smallest and largest absolute value of one tensor of a frame: a weight, an input or an output."""

    name: str
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Frame(PlainData):
    """One module call: its own parameters, its inputs and its outputs. `module` is the dotted path, "" for the root."""

    module: str
    class_name: str
    tensors: tuple[Extremes, ...]


@dataclass(frozen=True)
class NonfiniteOrigin(PlainData):
    """The first non-finite value of one step, in the forward pass or among the gradients.

    `inputs` says what the operation was given: `finite`, or which non-finite values and from where. `parameters` are
    those whose gradient is not finite (of how many: `parameter_count`).
    """

    phase: Literal["forward", "backward"]
    kind: Literal["NaN", "Inf", "-Inf"]
    source: Source
    operation: str = ""
    inputs: str = "finite"
    inputs_finite: bool = True
    module: str | None = None
    at: SourceLine | None = None
    code: str = ""
    step: int | None = None
    parameters: tuple[str, ...] = ()
    parameter_count: int = 0
    note: str = ""
    frames: tuple[Frame, ...] = field(default=())
    """The last module calls up to the first non-finite one, oldest first."""


@dataclass(frozen=True)
class Nonfinite(PlainData):
    """The first non-finite value of a step's forward pass, and of the gradients an optimizer was about to use."""

    forward: NonfiniteOrigin | None
    gradient: NonfiniteOrigin | None

"""The observation of the first NaN or Inf of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from debugkit.finding import SourceLine
from debugkit.observation import measured_by
from debugkit.plain_data import PlainData

Source = Literal["operation", "accumulation", "input", "parameter", "unlocated"]
"""operation: an operation produced it. accumulation: a sum of finite gradients overflowed. input, parameter: it was
already in an input or in a parameter. unlocated: it occurred, but the step could not be repeated."""


@dataclass(frozen=True)
class Extremes(PlainData):
    """The smallest and largest absolute value of one tensor of a frame: a weight, an input or an output."""

    name: str
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Frame(PlainData):
    """One module call with its parameters, inputs and outputs. `module` is the dotted path, "" for the root."""

    module: str
    class_name: str
    tensors: tuple[Extremes, ...]


@dataclass(frozen=True)
class NonfiniteOrigin(PlainData):
    """The first non-finite value of one step, in the forward pass or among the gradients.

    `inputs` describes the inputs of the operation: `finite`, or the non-finite values and their origin. `parameters`
    are those whose gradient is not finite, out of `parameter_count`.
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


@measured_by("debugkit.measurements.nonfinite.measure:trace_nonfinite", cost=3, requires=("batch",))
@dataclass(frozen=True)
class Nonfinite(PlainData):
    """The first non-finite value of a forward pass, and of the gradients that an optimizer was about to use."""

    forward: NonfiniteOrigin | None
    gradient: NonfiniteOrigin | None

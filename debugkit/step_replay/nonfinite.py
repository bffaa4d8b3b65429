"""The observation of the first NaN or Inf of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from debugkit.finding import SourceLine
from debugkit.observation import measured_by
from debugkit.plain_data import PlainData, show_line
from debugkit.rule_text import code, counted, module_name, sentence, verb

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

    def __str__(self) -> str:
        text = self.sentence
        if self.at is not None:
            text += f"\n    at {show_line(self.at)}"
        if self.module is not None:
            text += f"\n    in {module_name(self.module)}"
        return text

    @property
    def sentence(self) -> str:
        """What happened, in one sentence, or two for gradients."""
        return _in_forward(self) if self.phase == "forward" else _in_backward(self)


def _in_forward(origin: NonfiniteOrigin) -> str:
    if origin.source == "input":
        return f"{_input(origin.operation)} already contains {origin.kind} when the forward pass begins."
    if origin.source == "parameter":
        path = ".".join(filter(None, (origin.module, origin.operation)))
        return f"{code(path)} already contains {origin.kind} when the forward pass begins."
    if origin.source == "unlocated":
        place = f"The output of {module_name(origin.module)}" if origin.operation != "loss" else "The loss"
        return f"{place} contains {origin.kind}; the operation that produced it is unknown: {origin.note}."
    place = f" in {code(origin.code)}" if origin.code else ""
    return f"{code(_operation(origin.operation))} returned {origin.kind} for {_given(origin)}{place}."


def _in_backward(origin: NonfiniteOrigin) -> str:
    affected = len(origin.parameters)
    reach = f"{affected:,} of {counted(origin.parameter_count, 'gradient')} {verb(affected, 'is', 'are')} not finite"
    if not origin.parameter_count:  # a step that was replayed only to find the operation
        reach = "The affected gradients were not recorded"
    if origin.source == "unlocated":
        first = f", that of {code(origin.parameters[0])} first" if origin.parameters else ""
        return f"{reach}{first}; the operation that produced them is unknown: {origin.note}."
    what = (
        f"{code(origin.operation)} returned {origin.kind} for a finite gradient"
        if origin.source == "operation"
        else f"Finite gradients became {origin.kind} when they were added up for {code(origin.operation)}"
    )
    return f"{what}{f' in the backward pass of {code(origin.code)}' if origin.code else ''}. {reach}."


def _given(origin: NonfiniteOrigin) -> str:
    if origin.inputs_finite:
        return "finite input"
    kinds, _, source = origin.inputs.partition(" from ")
    came = f" (from {source if source == 'the model' else code(_operation(source))})" if source else ""
    return f"input that contains {kinds}{came}"


def _operation(name: str) -> str:
    """The name that a program uses: `_softmax` is the operation inside `softmax`."""
    return name.lstrip("_")


def _input(name: str) -> str:
    """The name of a keyword is code; `the input`, `input 0` and `argument 2` are words."""
    return sentence(name) if name == "the input" or name.startswith(("input ", "argument ")) else code(name)


@measured_by("debugkit.measurements.nonfinite.measure:trace_nonfinite", cost=3, requires=("batch",))
@dataclass(frozen=True)
class Nonfinite(PlainData):
    """The first non-finite value of a forward pass, and of the gradients that an optimizer was about to use."""

    forward: NonfiniteOrigin | None
    gradient: NonfiniteOrigin | None

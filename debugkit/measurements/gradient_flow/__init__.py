"""The gradients of each parameter in several backward passes, and the outputs of ReLUs and layers on the way."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observation import measured_by


@dataclass(frozen=True, slots=True)
class ZeroGradient:
    """A parameter that has a gradient, but one that is zero in every element in every pass."""

    path: str
    module: str
    numel: int
    matrix: bool
    after_a_step: bool
    """Whether it is still zero after one step and with all-zero parameters (gates) set to small values."""
    one_of_several: bool
    """Whether it is an expert or a task's head with an empty input, or with the input of a sibling that trains."""


@dataclass(frozen=True, slots=True)
class DeadLayer:
    """One call of a ReLU in the model."""

    module: str
    units: int
    dead: int
    """How many units were zero for every sample of every pass."""
    samples: int
    after_a_step: int
    """How many of them were still zero after one step."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The same matrix in consecutive layers (`encoder.layers.*.fc1`), in the order in which they ran."""

    pattern: str
    modules: tuple[str, ...]
    gradients: tuple[tuple[float, ...], ...]
    """For each pass, the root mean square of each layer's gradient."""
    outputs: tuple[tuple[float, ...], ...]
    """For each pass, the root mean square of each layer's output."""


@measured_by(".measure:follow_the_gradient", cost=4, requires=("batch",))
@dataclass(frozen=True, slots=True)
class GradientFlow:
    """The result of `passes` backward passes, each with its own batch and seed; one pass if nothing was suspicious."""

    passes: int
    alive: tuple[str, ...]
    """Parameters that received a gradient other than zero."""
    zero: tuple[ZeroGradient, ...]
    relus: tuple[DeadLayer, ...]
    stacks: tuple[Stack, ...]

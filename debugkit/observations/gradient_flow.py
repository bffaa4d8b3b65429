"""What several backward passes gave each parameter, and what ReLUs and layers let through on the way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ZeroGradient:
    """A parameter whose gradient is there and is zero in every element, in every pass."""

    path: str
    module: str
    numel: int
    matrix: bool
    after_a_step: bool
    """Whether it is still zero after one step and with all-zero parameters (gates) given small values."""
    one_of_several: bool
    """Whether it is an expert or a head of one task: fed with nothing, or like an entry of its list that trains."""


@dataclass(frozen=True, slots=True)
class DeadLayer:
    """One call of a ReLU in the model."""

    module: str
    units: int
    dead: int
    """How many gave zero for every sample of every pass."""
    samples: int
    after_a_step: int
    """How many gave zero also after one step."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The same matrix of consecutive layers: `encoder.layers.*.fc1`, in the order in which they ran."""

    pattern: str
    modules: tuple[str, ...]
    gradients: tuple[tuple[float, ...], ...]
    """For each pass, the root mean square of each layer's gradient."""
    outputs: tuple[tuple[float, ...], ...]
    """For each pass, the root mean square of each layer's output."""


@dataclass(frozen=True, slots=True)
class GradientFlow:
    """After `passes` backward passes, each with a batch and a seed of its own; one where it showed nothing strange."""

    passes: int
    alive: tuple[str, ...]
    """Parameters that received a gradient other than zero."""
    zero: tuple[ZeroGradient, ...]
    relus: tuple[DeadLayer, ...]
    stacks: tuple[Stack, ...]

"""How many values of float16 gradients lie where the format has few digits left, or none."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class HalfGradient(PlainData):
    """The float16 gradients of one module's outputs, or of one parameter, in one step.

    `nonzero` counts the values that are not zero; `subnormal` of them are below 6.1e-5, where float16 loses digits.
    """

    module: str
    parameter: str | None
    numel: int
    nonzero: int
    subnormal: int


@dataclass(frozen=True)
class HalfStep(PlainData):
    """All float16 gradients of one step, in the order of the backward pass. `zero_loss` is whether the loss was 0."""

    step: int
    zero_loss: bool
    gradients: tuple[HalfGradient, ...]


@dataclass(frozen=True)
class HalfGradients(PlainData):
    """The last three steps, oldest first; `half_parameters` is how many trainable parameters are float16."""

    half_parameters: int
    steps: tuple[HalfStep, ...]


@dataclass(frozen=True)
class RescaledGradient(PlainData):
    """Of the `nonzero` elements of a scaled gradient, how many are zero or subnormal without the scale."""

    parameter: str
    nonzero: int
    zero: int
    subnormal: int

    @property
    def lost(self) -> int:
        """Both together."""
        return self.zero + self.subnormal


@dataclass(frozen=True)
class RescaledGradients(PlainData):
    """The same step with the loss as it is and multiplied by `scale`, on float16 parameters."""

    scale: float
    gradients: tuple[RescaledGradient, ...]

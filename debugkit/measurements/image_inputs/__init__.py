"""The values that reach the first convolution or patch embedding of each image tower."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observation import observed_by


@dataclass(frozen=True, slots=True)
class ImageInput:
    """One tensor of images as a first layer received it."""

    module: str
    channels: int
    minimum: float
    maximum: float
    mean: float
    std: float
    whole_numbers: bool
    """Whether every value is an integer."""
    lowest_share: float
    """The share of values that equal the minimum; 0 if they are fewer than eight."""
    above_lowest: float
    """The smallest value above the minimum; the minimum itself if there is none."""


@observed_by(".measure:ImageInputsProbe")
@dataclass(frozen=True, slots=True)
class ImageInputs:
    """The inputs of all first layers in order of execution, each layer once."""

    inputs: tuple[ImageInput, ...]

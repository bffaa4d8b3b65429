"""Raw pixels of 0 to 255 reach the first convolution.

## What it finds
Images that are whole numbers above 2 where they enter the network, wherever normalising was meant to happen.

## Why it hurts
Weights are initialised, and pretrained towers were trained, for numbers around -1 to 1. With inputs a hundred times
larger the first layer dominates, the loss starts far too high, and a pretrained tower sees white noise.

## Evidence
Minimum, maximum and mean of the first layer's input, and that all of it is whole numbers.

## Fix
Divide by 255 and apply the mean and standard deviation of the tower's processor, in one place that training and the
robot share.

## When it stays silent
Images normalised in the batch, in the model or by a leading BatchNorm; masks and one-hot maps (0, 1, 2); label maps
and occupancy grids of one channel up to 127; inputs that come out of another layer.

## Cost
Free: seen while a step runs; under watch() during the first three.

## Lesson
[Lab 31](../../lessons/data/31_pixel_range.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.image_inputs import ImageInput, ImageInputs
from debugkit.registry import Context, rule

LARGEST_CODE = 2.0
"""Masks and ternary codes end here; a colour image in whole numbers does not."""
LARGEST_CLASS = 127.0
"""One channel may hold class numbers; an image of one channel goes to 255."""


@rule(
    "DK301",
    name="raw-pixels",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    cost="F",
    modes=("check", "watch"),
    needs=(ImageInputs,),
)
def judge(seen: ImageInputs, context: Context) -> Iterator[Finding]:
    for image in seen.inputs:
        threshold = LARGEST_CLASS if image.channels == 1 else LARGEST_CODE
        if not is_raw(image) or image.maximum <= threshold:
            continue
        place = image.module or "the first layer"
        yield context.finding(
            f"Pixels reach {place} as whole numbers from {image.minimum:g} to {image.maximum:g}.",
            module=image.module,
            evidence={
                "minimum": image.minimum,
                "maximum": image.maximum,
                "mean": image.mean,
                "whole_numbers": image.whole_numbers,
                "threshold": threshold,
            },
            fix="Divide by 255 and normalise with the tower's mean and standard deviation before the first layer.",
        )


def is_raw(image: ImageInput) -> bool:
    """Whole numbers from zero up."""
    return image.whole_numbers and image.minimum >= 0

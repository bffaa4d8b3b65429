"""Raw pixels of 0 to 255 reach the first convolution.

## What it finds
Images whose values are all whole numbers, the largest above 2, when they enter the network: in the batch, or after
normalisation inside the model.

## Why it hurts
Weights are initialised, and pretrained towers were trained, for values around -1 to 1. With values a hundred times
larger the first layer dominates, the loss starts far too high, and to a pretrained tower the images look like noise.

## Evidence
Minimum, maximum and mean of the first layer's input, and that all values are whole numbers.

## Fix
Divide by 255 and apply the mean and standard deviation of the tower's processor. Do it in one place that training and
the robot share.

## When it stays silent
Images normalised in the batch, in the model or by a leading BatchNorm; masks and one-hot maps (0, 1, 2); label maps and
occupancy grids with one channel up to 127; inputs that are the output of another layer.

## Cost
Under `watch()`, only the first three steps are observed.

## Lesson
[Lab 31](../../lessons/data/31_only_on_square_cameras.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.image_inputs import ImageInput, ImageInputs
from debugkit.rule import Context, rule
from debugkit.rule_text import module_name

LARGEST_CODE = 2.0
"""Masks and ternary codes go up to here, colour images in whole numbers go higher."""
LARGEST_CLASS = 127.0
"""One channel may hold class numbers. A grey image goes up to 255."""


@rule(
    "DK301",
    name="raw-pixels",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("check", "watch"),
    needs=(ImageInputs,),
)
def judge(seen: ImageInputs, context: Context) -> Iterator[Finding]:
    for image in seen.inputs:
        threshold = LARGEST_CLASS if image.channels == 1 else LARGEST_CODE
        if not is_raw(image) or image.maximum <= threshold:
            continue
        place = module_name(image.module) if image.module else "the first layer"
        yield context.finding(
            f"Pixel values reach {place} as whole numbers from {image.minimum:g} to {image.maximum:g}.",
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
    """Whether all values are whole numbers and none is negative."""
    return image.whole_numbers and image.minimum >= 0

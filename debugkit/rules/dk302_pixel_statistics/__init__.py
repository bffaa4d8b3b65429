"""The range or the statistics of the pixels cannot come from a single normalisation.

## What it finds
Colour images at the first layer that

- were normalised twice (from -3 to 1, or a mean of -2 with a standard deviation of 5);
- were padded with -1 before they were scaled;
- were divided by 255 twice, or normalised with the statistics of 0-255 pixels;
- were never normalised, although their values are no longer whole numbers.

## Why it hurts
A pretrained tower recognises only what it was trained on. Bars at -3 next to the image, or an image compressed into a
hundredth of its range, cost accuracy, and no log shows it.

## Evidence
Minimum, maximum, mean and standard deviation at the first layer. For padding, also the share of values at the minimum
and the gap above it.

## Fix
Normalise in one place. Pad with black (0) before scaling, or with the lowest value after it (-1 for the range [-1, 1]).

## When it stays silent
- [0, 1], [-1, 1], ImageNet's and CLIP's constants, and the statistics of a data set or of each image (mean near 0,
  standard deviation near 1).
- Random numbers as test input, blank images, and images with one or four channels.
- Inputs that are the output of another layer.

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
from debugkit.rule_text import amount, module_name

DARKEST = -2.3
"""Lower than with any known constants: black is -2.12 with ImageNet's, -1.79 with CLIP's."""
BRIGHTEST = 3.0
"""Higher than with any known constants: white is 2.64 with ImageNet's, 2.82 with MNIST's."""
OFF_CENTRE = 1.5
WIDEST = 2.5
"""A normalised data set has a standard deviation of 1, and a single batch of it hardly more than 2."""
FLATTEST = 0.02
"""Five grey levels of 255: the range of an image that was scaled down twice."""
BAR_SHARE = 0.001
BAR_GAP = 1.0


@rule(
    "DK302",
    name="pixel-statistics",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("check", "watch"),
    needs=(ImageInputs,),
)
def judge(seen: ImageInputs, context: Context) -> Iterator[Finding]:
    for image in seen.inputs:
        fault = diagnose(image)
        if fault is None:
            continue
        what, fix = fault
        place = module_name(image.module) if image.module else "the first layer"
        yield context.finding(
            f"The pixel values that reach {place} {what}: they are between {amount(image.minimum)} and "
            f"{amount(image.maximum)}, with mean {amount(image.mean, 2)} and standard deviation "
            f"{amount(image.std, 2)}.",
            module=image.module,
            evidence={
                "minimum": image.minimum,
                "maximum": image.maximum,
                "mean": image.mean,
                "std": image.std,
                "share_at_minimum": image.lowest_share,
                "next_above_minimum": image.above_lowest,
                "thresholds": [DARKEST, BRIGHTEST, OFF_CENTRE, WIDEST, FLATTEST],
            },
            fix=fix,
        )


def diagnose(image: ImageInput) -> tuple[str, str] | None:
    """What is wrong with the statistics, and the fix. None if a single normalisation can produce them."""
    if image.channels != 3 or image.whole_numbers or image.std == 0:
        return None
    if image.maximum - image.minimum <= FLATTEST:
        return (
            "are nearly constant, as after scaling twice",
            "Scale by 1/255 once, and use statistics of the scaled range.",
        )
    if image.minimum >= 0 and image.maximum > BRIGHTEST and image.mean > OFF_CENTRE:
        return "were never normalised", "Divide by 255 and normalise with the tower's mean and standard deviation."
    bars = image.lowest_share >= BAR_SHARE and image.above_lowest - image.minimum > BAR_GAP
    if image.minimum < DARKEST and bars:
        return (
            "contain bars of a single value far below the rest of the image",
            "Pad with 0 before scaling, or with the lowest value after it.",
        )
    if image.minimum < DARKEST and image.maximum <= 1.001 and image.mean < -0.5:
        return "were scaled to [-1, 1] twice", "Scale in one place: in the processor or in the policy, not in both."
    outside = image.minimum < DARKEST or image.maximum > BRIGHTEST
    if outside and (abs(image.mean) > OFF_CENTRE or image.std > WIDEST):
        return (
            "were normalised twice or with other statistics",
            "Normalise in one place, with the tower's own statistics.",
        )
    return None

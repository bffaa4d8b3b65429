"""The pixels' range or statistics cannot come from one normalisation.

## What it finds
Colour images at the first layer that were normalised twice (from -3 to 1, or a mean of -2 with a standard deviation
of 5), padded with -1 before they were scaled, divided by 255 twice or normalised with the statistics of 0-255 pixels,
and never normalised though no longer whole numbers.

## Why it hurts
A pretrained tower recognises what it was trained on. Bars at -3 beside the image, or an image squeezed into a
hundredth of its range, cost accuracy that no log shows.

## Evidence
Minimum, maximum, mean and standard deviation at the first layer; for padding also the share of values at the minimum
and the gap above it.

## Fix
Normalise in one place. Pad with black (0) before scaling, or with -1 after.

## When it stays silent
[0, 1], [-1, 1], ImageNet's and CLIP's constants, statistics of a data set or of each image (mean near 0, standard
deviation near 1), random numbers given for a test, blank images, one or four channels, and inputs that come out of
another layer.

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

DARKEST = -2.3
"""Below what any known constants give: black is -2.12 with ImageNet's, -1.79 with CLIP's."""
BRIGHTEST = 3.0
"""Above what any known constants give: white is 2.64 with ImageNet's; 2.82 with MNIST's."""
OFF_CENTRE = 1.5
WIDEST = 2.5
"""A normalised data set has standard deviation 1; a single batch of it hardly more than 2."""
FLATTEST = 0.02
"""Five grey levels of 255: what is left of an image that was scaled down twice."""
BAR_SHARE = 0.001
BAR_GAP = 1.0


@rule(
    "DK302",
    name="pixel-statistics",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    cost="F",
    modes=("check", "watch"),
    needs=(ImageInputs,),
)
def judge(seen: ImageInputs, context: Context) -> Iterator[Finding]:
    for image in seen.inputs:
        fault = diagnose(image)
        if fault is None:
            continue
        what, fix = fault
        yield context.finding(
            f"Pixels at {image.module or 'the first layer'} range from {image.minimum:.3g} to {image.maximum:.3g} "
            f"with mean {image.mean:.2g} and standard deviation {image.std:.2g}: {what}.",
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
    """What is wrong with the statistics, and its cure; None for what one normalisation can give."""
    if image.channels != 3 or image.whole_numbers or image.std == 0:
        return None
    if image.maximum - image.minimum <= FLATTEST:
        return (
            "the image is nearly constant, as after two scalings",
            "Scale by 1/255 once; use statistics of that range.",
        )
    if image.minimum >= 0 and image.maximum > BRIGHTEST and image.mean > OFF_CENTRE:
        return "it was never normalised", "Divide by 255 and normalise with the tower's mean and standard deviation."
    bars = image.lowest_share >= BAR_SHARE and image.above_lowest - image.minimum > BAR_GAP
    if image.minimum < DARKEST and bars:
        return (
            "bars of one value lie far below the image",
            "Pad with 0 before scaling, or with the lowest value after it.",
        )
    if image.minimum < DARKEST and image.maximum <= 1.001 and image.mean < -0.5:
        return "it was scaled to [-1, 1] twice", "Scale in one place: in the processor or in the policy, not in both."
    outside = image.minimum < DARKEST or image.maximum > BRIGHTEST
    if outside and (abs(image.mean) > OFF_CENTRE or image.std > WIDEST):
        return (
            "it was normalised twice or with other statistics",
            "Normalise in one place, with the tower's own statistics.",
        )
    return None

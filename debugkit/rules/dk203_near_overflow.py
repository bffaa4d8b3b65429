"""Values come within a factor of ten of the largest number that their dtype can hold.

## What it finds
What a module is given or returns, larger than a tenth of its dtype's largest value: above 6550 in float16. A float32
input that autocast is about to convert counts as the float16 it becomes.

## Why it hurts
The next batch, or the next thousand steps, bring the factor of ten: the value is Inf, the one after it NaN. Float16
ends at 65504, and residual streams of large pretrained models pass it (T5's gated feed-forward at 6.3e4 is the known
case); they were trained in bfloat16, which ends where float32 does.

## Evidence
`largest`, the `limit` of the `dtype`, the `fraction` reached with its `threshold`, 0.1, and the `modules` that follow
near the limit. The first in the order of computation is named.

## Fix
bfloat16 for this part, or float32 under `torch.autocast(..., enabled=False)`. Dividing before the product and
multiplying back after it is exact if the factor is a power of two. Clamping hides it: the gradient there is 0.

## When it stays silent
Masks: -Inf, the dtype's smallest or largest number, -1e4, -1e9 and the like, which stand in several places and may
have small scores added. Values that are not finite already (DK201). Integers and booleans. What functions between
modules compute is seen where it enters or leaves a module.

Beyond the first step `watch()` looks at float16 only; the other dtypes' range is so wide that a value near its end is
there at once or is on its way to Inf, which DK201 names.

## Cost
Minimum, maximum and a count of each tensor, kept on the device until the step is over.

## Lesson
[Lab 25](../../lessons/numerics/25_fp16_overflow.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.dtype_peaks import DtypePeaks, TensorPeak
from debugkit.registry import Context, rule

_THRESHOLD = 0.1
_NAMED = 8
_SMALLEST = (65504.0, 3.3895313892515355e38, 3.4028234663852886e38)  # of float16, bfloat16 and float32, negated
_FILLS = (
    *(10.0**power for power in range(4, 38)),
    *(factor * 1e4 for factor in (3.0, 5.0, 6.0, 6.5)),
    *(value / 2 for value in _SMALLEST),
    *_SMALLEST,
)
_NEAR_A_FILL = 0.01  # scores of up to 100 are added to a mask of -1e4


@rule(
    "DK203",
    name="near-overflow",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    cost="1S",
    modes=("check", "watch"),
    needs=(DtypePeaks,),
    consequence_of=("DK201",),
)
def judge(seen: DtypePeaks, context: Context) -> Iterator[Finding]:
    near = [peak for peak in seen.peaks if largest(peak) > _THRESHOLD * peak.limit]
    if not near:
        return
    first = near[0]
    value = largest(first)
    place = first.module or "the model"
    held = f", which autocast converts to {first.dtype}" if first.converted else f" in {first.dtype}"
    yield context.finding(
        f"The {first.role} of {place} reaches {value:.4g}{held}; the largest {first.dtype} is {first.limit:.4g}.",
        module=first.module,
        evidence={
            "largest": value,
            "limit": first.limit,
            "fraction": value / first.limit,
            "threshold": _THRESHOLD,
            "dtype": first.dtype,
            "modules": list(dict.fromkeys(peak.module for peak in near))[:_NAMED],
        },
        fix="Run this part in bfloat16, or in float32 with autocast disabled; or scale down before the product by a "
        "power of two and back after it.",
        affects=list(dict.fromkeys(peak.module for peak in near)),
    )


def largest(peak: TensorPeak) -> float:
    """The largest absolute value that was computed: a mask's fill and what is not finite count as 0."""
    if math.isnan(peak.minimum) or math.isnan(peak.maximum):
        return 0.0
    below = -peak.minimum if math.isfinite(peak.minimum) and not is_fill(peak) else 0.0
    above = peak.maximum if math.isfinite(peak.maximum) and peak.maximum not in _SMALLEST else 0.0
    return max(below, above)


def is_fill(peak: TensorPeak) -> bool:
    """Whether the minimum is one of the numbers that programs put where attention must not look."""
    smallest = any(math.isclose(-peak.minimum, value, rel_tol=1e-6) for value in _SMALLEST)
    return smallest or (
        peak.at_minimum > 1 and any(math.isclose(-peak.minimum, fill, rel_tol=_NEAR_A_FILL) for fill in _FILLS)
    )

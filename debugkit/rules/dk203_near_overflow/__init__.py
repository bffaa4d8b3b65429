"""Values come within a factor of ten of the largest number that their dtype can hold.

## What it finds
Inputs and outputs of modules with values larger than a tenth of the dtype's maximum: above 6550 in float16. A float32
input that autocast is about to convert counts as float16.

## Why it hurts
Values often grow tenfold with another batch or within a thousand steps. The value is then Inf, and the next one NaN.
Float16 ends at 65504, and the residual streams of large pretrained models come close to it or exceed it (T5's gated
feed-forward, at 6.3e4, is the best-known case). They were trained in bfloat16, which has the range of float32.

## Evidence
`largest`, the `limit` of the `dtype`, the `fraction` of the limit with its `threshold`, 0.1, and the `modules` with
values near the limit. The finding names the first one in the order of computation.

## Fix
Use bfloat16 for this part, or float32 under `torch.autocast(..., enabled=False)`. Dividing before the product and
multiplying after it is exact if the factor is a power of two. Clamping hides the problem: the gradient there is 0.

## When it stays silent
Masks: -Inf, the dtype's smallest or largest number, -1e4, -1e9 and the like, which occur at several positions and may
have small scores added to them. Values that are already non-finite (DK201). Integers and booleans. Values that
functions compute between modules are only seen when they enter or leave a module.

After the first step, `watch()` checks float16 only. The range of the other dtypes is so wide that a value near its end
is there from the start, or is on its way to Inf, which DK201 reports.

## Cost
A minimum, a maximum and a count for each tensor, kept on the device until the end of the step.

## Lesson
[Lab 25](../../lessons/numerics/25_fine_until_it_trains.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, module_name


@dataclass(frozen=True)
class TensorPeak(PlainData):
    """One tensor. `module` is the dotted path; `limit` is the largest value of `dtype`.

    `dtype` is the tensor's own, or float16 if autocast is about to convert it (`converted`). `at_minimum` counts the
    elements that equal the minimum: a mask's fill value occurs many times.
    """

    module: str
    role: str
    dtype: str
    limit: float
    converted: bool
    minimum: float
    maximum: float
    at_minimum: int


@observed_by(".measure:DtypePeaksProbe")
@dataclass(frozen=True)
class DtypePeaks(PlainData):
    """One step, in the order of computation. A tensor that several modules pass on is listed once."""

    peaks: tuple[TensorPeak, ...]


_THRESHOLD = 0.1
_NAMED = 8
_SMALLEST = (65504.0, 3.3895313892515355e38, 3.4028234663852886e38)  # of float16, bfloat16 and float32, negated
_FILLS = (
    *(10.0**power for power in range(4, 38)),
    *(factor * 1e4 for factor in (3.0, 5.0, 6.0, 6.5)),
    *(value / 2 for value in _SMALLEST),
    *_SMALLEST,
)
_NEAR_A_FILL = 0.01  # scores of up to 100 may be added to a mask of -1e4


@rule(
    "DK203",
    name="near-overflow",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
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
    reached, maximum = amount(value), amount(first.limit, 5 if first.limit < 1e6 else 3)
    held = f", which autocast converts to {first.dtype}" if first.converted else f" in {first.dtype}"
    yield context.finding(
        f"The {first.role} of {module_name(first.module)} reaches {reached}{held}, whose maximum is {maximum}.",
        module=first.module,
        evidence={
            "largest": value,
            "limit": first.limit,
            "fraction": value / first.limit,
            "threshold": _THRESHOLD,
            "dtype": first.dtype,
            "modules": list(dict.fromkeys(peak.module for peak in near))[:_NAMED],
        },
        fix="Run this part in bfloat16, or in float32 with autocast disabled. Or divide by a power of two before the "
        "product and multiply by it afterwards.",
        affects=list(dict.fromkeys(peak.module for peak in near)),
    )


def largest(peak: TensorPeak) -> float:
    """The largest absolute value that was computed. A mask's fill value and non-finite values count as 0."""
    if math.isnan(peak.minimum) or math.isnan(peak.maximum):
        return 0.0
    below = -peak.minimum if math.isfinite(peak.minimum) and not is_fill(peak) else 0.0
    above = peak.maximum if math.isfinite(peak.maximum) and peak.maximum not in _SMALLEST else 0.0
    return max(below, above)


def is_fill(peak: TensorPeak) -> bool:
    """Whether the minimum is one of the numbers that programs use to mask attention scores."""
    smallest = any(math.isclose(-peak.minimum, value, rel_tol=1e-6) for value in _SMALLEST)
    return smallest or (
        peak.at_minimum > 1 and any(math.isclose(-peak.minimum, fill, rel_tol=_NEAR_A_FILL) for fill in _FILLS)
    )

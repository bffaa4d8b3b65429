"""Memory grows from one training step to the next, and does not stop growing.

## What it finds
More bytes allocated at the end of each step, on the GPU, or by the process where the model is on the CPU: lists that
keep outputs, a cache without a bound, hooks or buffers that are registered again in every step.

## Why it hurts
The run dies after hours, at whichever line happens to ask for the last megabyte. A batch size found by trying is too
large an hour later.

## Evidence
Bytes a step (Theil and Sen's slope, the median over all pairs of steps, which single peaks do not move), the
probability of such a trend by chance (Mann and Kendall's test), the growth over the steps looked at, and the threshold
of each.

## Fix
Look at what lives longer than its step. `torch.cuda.memory._record_memory_history()` tells what is allocated where;
bound a cache by size. DK601 and DK603 name the two usual causes in a loop.

## When it stays silent
The first quarter of the steps, in which optimizers make their state and libraries warm up; growth that has come to an
end, such as a cache that is full; less than 1 MiB in all, or less than 4 KiB a step; batches of different length, which
go up and down. Memory that the allocator only keeps in reserve is not counted. A cache that is bounded and still
filling looks the same as one without a bound.

## Cost
Free: one number a step.

## Lesson
[Lab 64](../../lessons/memory/64_growing_cache.md)
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.memory_samples import MemorySamples
from debugkit.registry import Context, rule

PROBABILITY = 0.01
GROWTH = 2**20  # bytes over the steps looked at: below it, logs and allocator bookkeeping
SLOPE = 4 * 2**10  # bytes a step
_STILL = 0.5  # of the whole slope must be left in the last third, or the growth has ended


@rule(
    "DK602",
    name="memory-slope",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    cost="nS",
    modes=("watch",),
    needs=(MemorySamples,),
    consequence_of=("DK601", "DK603"),
)
def judge(seen: MemorySamples, context: Context) -> Iterator[Finding]:
    settled = seen.bytes[len(seen.bytes) // 4 :]
    if len(settled) < 12:
        return
    slope = theil_sen(settled) / seen.every
    growth = slope * seen.every * (len(settled) - 1)
    chance = trend_by_chance(settled)
    lately = theil_sen(settled[-(len(settled) // 3) :]) / seen.every
    if chance >= PROBABILITY or growth < GROWTH or slope < SLOPE or lately < _STILL * slope:
        return
    yield context.finding(
        f"Memory on {seen.where} grows by {slope / 2**10:,.1f} KiB a step: {growth / 2**20:,.1f} MiB so far.",
        evidence={
            "bytes_a_step": slope,
            "needed_bytes_a_step": SLOPE,
            "growth": growth,
            "needed_growth": GROWTH,
            "p": chance,
            "needed_p": PROBABILITY,
            "steps": (len(seen.bytes) - 1) * seen.every,
            "last_third_bytes_a_step": lately,
        },
        fix="Find what lives longer than its step: lists of outputs, caches without a bound, hooks added in the loop.",
    )


def theil_sen(values: Sequence[float]) -> float:
    """The median slope over all pairs; 0 for fewer than two values."""
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in itertools.combinations(enumerate(values), 2)]
    return statistics.median(slopes) if slopes else 0.0


def trend_by_chance(values: Sequence[float]) -> float:
    """The probability, by Mann and Kendall's one-sided test, of a rise at least this steady among random orders."""
    count = len(values)
    score = sum((b > a) - (b < a) for a, b in itertools.combinations(values, 2))
    ties = sum(size * (size - 1) * (2 * size + 5) for size in Counter(values).values())
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18
    if variance <= 0 or score <= 0:
        return 1.0
    return 0.5 * math.erfc((score - 1) / math.sqrt(2 * variance))

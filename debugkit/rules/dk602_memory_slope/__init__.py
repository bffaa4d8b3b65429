"""Memory grows with every training step and does not stop growing.

## What it finds
More allocated bytes when the model is called after each step, on the GPU, or in the process if the model is on the
CPU. Typical causes are lists that keep outputs, caches without a size limit, and hooks or buffers that are registered
again in every step.

A run that ends before its memory was recorded 32 times is judged at its end: memory must have risen in each step after
the first quarter, at least eight, by nearly equal amounts. One rise in eight may be smaller, as after the last batch of
an epoch. It may also be a fall, as when a garbage collection frees what was left from before the run: less than half of
what the steps before it kept, and followed by further rises.

A short run of a small model, as in a test, does not reach 1 MiB. There the growth is compared with the model: each step
must keep at least as many bytes as the parameters that receive a gradient have, within a fifth. A longer run that ends
with less than 1 MiB is judged in the same way.

## Why it hurts
After hours the run ends with an out-of-memory error, at whichever line requests the last megabyte. A batch size that
was found by trial is too large an hour later.

## Evidence
Bytes per step (the Theil-Sen slope: the median over all pairs of steps, which single peaks do not change), the
probability of such a trend by chance (the Mann-Kendall test), the growth over the observed steps, and the threshold of
each.

## Fix
Find the objects that live longer than one step. `torch.cuda.memory._record_memory_history()` records what is allocated
where. Limit the size of caches. DK601, DK603 and DK605 find the most common causes in a loop.

## When it stays silent
- The first quarter of the steps is ignored, because optimizers create their state and libraries warm up.
- The growth has ended, as with a cache that is full.
- Memory rises in less than a quarter of the steps, as where a new stage of the training allocates its buffers once.
- On a CPU, more than a quarter of the calls have inputs of new shapes: oneDNN keeps what it has prepared for each of
  them. Once the shapes repeat, the growth is judged.
- Growth below 1 MiB in total, or below 4 KiB per step. In a run that has ended, growth by the size of the model in each
  step is enough, if that is at least 8 KiB.
- Memory that is given back: a fall of half of what the steps kept, as when a collection frees the run's own objects, or
  when a list is emptied at the end of an epoch.
- Objects that refer to each other and wait for a garbage collection, which a short run may end without. Where memory
  has grown, one collection at the end of the run shows how much it frees.
- Batches of different length, whose memory goes up and down, and episodes that become longer, whose outputs are freed
  before the next one begins.

Memory that the allocator only keeps in reserve is not counted. A cache with a size limit that is still filling looks
like one without a limit.

## Cost
One number is recorded per step, and in fewer of them after 64 steps. At the end of a short run whose memory has grown,
garbage is collected once.

## Lesson
[Lab 64](../../lessons/memory/64_fine_on_fifty.md)
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted


@observed_by(".measure:MemorySamplesProbe")
@dataclass(frozen=True)
class MemorySamples(PlainData):
    """One sample every `every` steps, oldest first, starting after the first step of the run.

    `where` is `cuda:0`, counted by PyTorch's allocator, or `host`, counted by the C library. Both count allocated
    bytes, without the memory that is only kept in reserve. `weights` are the bytes of the parameters that receive a
    gradient. `garbage` are the bytes that a garbage collection freed at the end of a short run whose memory had grown.
    """

    where: str
    every: int
    bytes: tuple[int, ...]
    weights: int = 0
    garbage: int = 0
    new_shapes: tuple[bool, ...] = ()
    """For each sample, whether the call of the model at which it was taken has inputs of shapes that are new."""


PROBABILITY = 0.01
GROWTH = 2**20  # bytes over the observed steps; logs and the allocator's own data stay below it
SLOPE = 4 * 2**10  # bytes per step
ENOUGH = 32  # samples for a trend
FEWEST_RISES = 8  # steps of a run that has ended, after its first quarter
_EQUAL = 0.6  # the share of the median rise that a rise must have: batches may differ in size
_OF_THE_WEIGHTS = 0.8  # the share of the weights' bytes that each rise of a small model must have
_EXCEPTIONS = 8  # one rise in this many may be smaller, or a fall
_KEPT = 0.5  # the share of regular rises that must be left after a fall: a collection may free older garbage
SMALL_SLOPE = 8 * 2**10  # bytes per step: a smaller model's weights are no more than what a loop logs
_FIX = "Find objects that outlive their step: lists of outputs, caches without a limit, hooks added in the loop."
LEAST_GROWTH = SMALL_SLOPE * FEWEST_RISES
_A_RISE = 0.25  # the share of the slope from which memory has risen between two samples
_RISING = 0.25  # the share of the settled steps in which memory must have risen
_MOST_NEW = 0.25  # the share of the settled samples of a CPU with inputs of new shapes
_STILL = 0.5  # the share of the slope that the last third must have; below it, the growth has ended


@rule(
    "DK602",
    name="memory-slope",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("watch",),
    needs=(MemorySamples,),
    consequence_of=("DK601", "DK603", "DK605"),
)
def judge(seen: MemorySamples, context: Context) -> Iterator[Finding]:
    settled = _settled(seen.bytes)
    if len(settled) < 12 or (context.ended and len(seen.bytes) < ENOUGH):
        yield from _short_run(seen, settled, context)
        return
    slope = theil_sen(settled) / seen.every
    growth = slope * seen.every * (len(settled) - 1)
    chance = trend_by_chance(settled)
    lately = theil_sen(settled[-(len(settled) // 3) :]) / seen.every
    if context.ended and growth < GROWTH:
        yield from _short_run(seen, settled, context)
        return
    new = sum(seen.new_shapes[-len(settled) :])
    if seen.where == "host" and new > _MOST_NEW * len(settled):
        raise NotExamined(
            f"Of {len(settled)} calls, {new} had inputs of new shapes, and operators of a CPU keep memory for each."
        )
    rises = [later - earlier for earlier, later in itertools.pairwise(settled)]
    if sum(rise >= _A_RISE * slope * seen.every for rise in rises) < _RISING * len(rises):
        return
    if chance >= PROBABILITY or growth < GROWTH or slope < SLOPE or lately < _STILL * slope:
        return
    yield context.finding(
        f"{_memory(seen.where)} grows by {slope / 2**10:,.1f} KiB per step, {growth / 2**20:,.1f} MiB so far.",
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
        fix=_FIX,
    )


def _short_run(seen: MemorySamples, settled: Sequence[int], context: Context) -> Iterator[Finding]:
    """A run that has ended: memory rose in each step by equal amounts, or nothing is reported."""
    rises = [later - earlier for earlier, later in itertools.pairwise(settled)]
    if not context.ended or len(rises) < FEWEST_RISES:
        raise NotExamined(f"The run is too short: {len(rises)} of {counted(FEWEST_RISES, 'settled step')}.")
    usual, least = statistics.median(rises), sorted(rises)[len(rises) // _EXCEPTIONS]
    as_the_weights = seen.weights >= SMALL_SLOPE and least >= _OF_THE_WEIGHTS * seen.weights * seen.every
    if usual <= 0 or least < _EQUAL * usual or (sum(rises) < GROWTH and not as_the_weights):
        return
    if _gives_back(rises, usual, len(seen.bytes) - len(settled)):
        return
    if seen.garbage > (1 - _KEPT) * sum(rises):
        return
    falls = sum(rise <= 0 for rise in rises)
    steps = f"{len(rises) - falls} of the last {len(rises)} steps" if falls else f"each of the last {len(rises)} steps"
    weights = f" The trainable parameters have {_size(seen.weights)}." if sum(rises) < GROWTH else ""
    yield context.finding(
        f"{_memory(seen.where)} grew in {steps} by about {usual / 2**10:,.1f} KiB, "
        f"{_size(sum(rises))} in all.{weights}",
        evidence={
            "bytes_a_step": usual / seen.every,
            "smallest_rise": min(rises),
            "falls": falls,
            "rise_that_one_in_eight_is_below": least,
            "needed_share_of_the_median": _EQUAL,
            "growth": sum(rises),
            "needed_growth": GROWTH,
            "garbage": seen.garbage,
            "or_needed_bytes_a_step": max(SMALL_SLOPE, _OF_THE_WEIGHTS * seen.weights),
            "steps": len(rises),
            "needed_steps": FEWEST_RISES,
        },
        fix=_FIX,
    )


def growth_of(samples: Sequence[int]) -> int:
    """The bytes by which memory has grown after the first quarter of the steps; 0 without samples."""
    settled = _settled(samples)
    return settled[-1] - settled[0] if settled else 0


def _settled(samples: Sequence[int]) -> Sequence[int]:
    return samples[len(samples) // 4 :]


def _gives_back(rises: Sequence[int], usual: float, before: int) -> bool:
    """Whether a fall freed half of what regular rises gave until then, or the run ended with a step that kept nothing.

    `before` is the number of steps before the first rise.
    """
    if rises[-1] <= 0 or sum(rises) < _KEPT * usual * len(rises):
        return True
    return any(rise < 0 and -rise > (1 - _KEPT) * usual * (before + i) for i, rise in enumerate(rises))


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB" if count >= GROWTH else f"{count / 2**10:,.1f} KiB"


def _memory(where: str) -> str:
    return "Host memory" if where == "host" else f"The memory of `{where}`"


def theil_sen(values: Sequence[float]) -> float:
    """The median slope over all pairs; 0 for fewer than two values."""
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in itertools.combinations(enumerate(values), 2)]
    return statistics.median(slopes) if slopes else 0.0


def trend_by_chance(values: Sequence[float]) -> float:
    """The p-value of the one-sided Mann-Kendall test: how likely random orders show a rise at least this steady."""
    count = len(values)
    score = sum((b > a) - (b < a) for a, b in itertools.combinations(values, 2))
    ties = sum(size * (size - 1) * (2 * size + 5) for size in Counter(values).values())
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18
    if variance <= 0 or score <= 0:
        return 1.0
    return 0.5 * math.erfc((score - 1) / math.sqrt(2 * variance))

"""The gradients of most batches are reset before the optimizer steps, so that a step uses only the last batch.

## What it finds
`optimizer.step()` outside of the loop over the batches, which calls `zero_grad()` and `backward()`: between two steps,
the gradients of three or more batches were computed and reset, and the step used those of the last batch, or none. Two
such periods in a row are a finding, if at least half of all steps are of this kind. Of periods with two discarded
batches, as where three are accumulated and reset each time, six in a row are needed. Of periods with two batches, of
which one was discarded, eight in a row are needed, and the loss of both must be divided by 2, as for accumulation. A
run that has only one such period is a finding if it has eight batches or more, and no other step.

## Why it hurts
An epoch changes the weights once instead of once for each batch. All batches are read and computed, but only the last
one is learned from, so training is slower by the number of batches. The loss falls slowly, and no error is raised.

## Evidence
The number of such periods, how many gradients were reset in them and the threshold for one period, 2 (or 1 if the
losses were divided by 2), and how many `backward()` calls there were. The line is that of `optimizer.step()`.

## Fix
Move `optimizer.step()` into the loop over the batches, after `backward()`. To accumulate gradients over several
batches, call `zero_grad()` only after a step.

## When it stays silent
- Gradient accumulation, also with clipping of each micro-batch.
- GANs and actor–critic training, where some optimizer steps between the resets.
- Gradients that are collected and written before the step: PCGrad, MGDA, per-sample clipping.
- Steps that a GradScaler or a test for finite values skips.
- Scores, saliency and Fisher information from the gradients of some batches: other steps use theirs, or another line
  calls their `backward()`.
- One discarded gradient in each step whose loss is not divided: a probe of gradients, an attack, the noise scale.
- Two losses with parameters of their own, or with `backward()` calls on different lines.
- Parameters that change between the calls of `backward()`: SAM, updates written by hand.

## Cost
A hook on three small parameters of each optimizer. It compares counters of changes; values are read from the device
only in a period like the one described.

## Lesson
No lab of its own; in [Lab 51](../../lessons/loop/51_second_phase.md) the gradients are reset too rarely instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted

DISCARDED = 2
"""Gradients that were reset before a step."""
_MANY_DISCARDED = 3
_ONE_DISCARDED = 1
_IN_A_ROW = {_MANY_DISCARDED: 2, DISCARDED: 6, _ONE_DISCARDED: 8}
"""Discarded gradients of each period, and how many periods in a row show that it is no accident."""
_BATCHES = 8
Used = Literal["last", "none", "other"]


@dataclass(frozen=True)
class Period(PlainData):
    """What happened to the gradients of a few parameters since the step before, of whatever optimizer."""

    step: int
    """Its number among the steps for which a gradient had arrived."""
    optimizer: str
    """The class of the optimizer whose step ended the period; empty at the end of the run."""
    backwards: int
    discarded: int
    """Gradients whose sum was None or zero when the next one arrived, or at the step; 0 if that occurred only once.

    1 only if two arrived, of losses that were `divided`."""
    used: Used
    """The gradients of the step: what the last `backward()` left, but for their scale; none; or others."""
    one_place: bool
    """Whether the same lines of the program made all calls of `backward()`."""
    unchanged: bool
    """Whether the parameters kept their values from the second `backward()` to the step."""
    at: SourceLine | None
    """The line of the step."""
    divided: bool = False
    """Whether there were two calls of `backward()`, each with a loss that was divided by 2."""

    @property
    def enough(self) -> int:
        """How many discarded gradients show that they were not meant to be."""
        return _ONE_DISCARDED if self.divided else DISCARDED

    @property
    def is_wasted(self) -> bool:
        """Whether the gradients were computed to be used, and were not."""
        return self.discarded >= self.enough and self.used != "other" and self.one_place and self.unchanged


@observed_by(".measure:PeriodsProbe")
@dataclass(frozen=True)
class Periods(PlainData):
    """The periods in which several gradients were discarded, and how many steps there were for which one had arrived.

    `rest` is the period after the last step, if it has as many.
    """

    steps: int
    found: tuple[Period, ...]
    rest: Period | None = None


@rule(
    "DK512",
    name="gradients-discarded",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("watch",),
    needs=(Periods,),
)
def judge(seen: Periods, context: Context) -> Iterator[Finding]:
    wasted = [period for period in seen.found if period.is_wasted]
    if 2 * len(wasted) < seen.steps or not (_are_in_a_row(wasted) or (context.ended and _is_whole_run(wasted, seen))):
        return
    backwards = sum(period.backwards for period in wasted)
    lost = sum(period.discarded for period in wasted)
    optimizer = wasted[0].optimizer
    yield context.finding(
        f"The gradients of {lost:,} of {counted(backwards, 'batch', 'batches')} were reset before "
        f"{counted(len(wasted), 'step')} of {optimizer}, which used "
        f"{'those of the last batch only' if wasted[0].used == 'last' else 'none of them'}.",
        at=wasted[0].at,
        step=wasted[0].step - 1,
        evidence={
            "periods": len(wasted),
            "steps": seen.steps,
            "backwards": backwards,
            "discarded": lost,
            "threshold": wasted[0].enough,
        },
        fix="Call `optimizer.step()` in the loop over the batches, after `backward()`. To accumulate gradients, reset "
        "them only after the step.",
    )


def _are_in_a_row(wasted: Sequence[Period]) -> bool:
    return any(
        _longest_row([period.step for period in wasted if period.discarded >= fewest]) >= enough
        for fewest, enough in _IN_A_ROW.items()
    )


def _longest_row(steps: Sequence[int]) -> int:
    longest = row = 1 if steps else 0
    for one, two in itertools.pairwise(steps):
        row = row + 1 if one + 1 == two else 1
        longest = max(longest, row)
    return longest


def _is_whole_run(wasted: Sequence[Period], seen: Periods) -> bool:
    """Whether the run has one step, which wasted the gradients of many batches, or more were wasted after it."""
    if len(wasted) != 1 or seen.steps != 1 or wasted[0].discarded < _MANY_DISCARDED:
        return False
    rest = seen.rest
    return wasted[0].backwards >= _BATCHES or (rest is not None and rest.is_wasted)

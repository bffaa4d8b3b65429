"""Gradients are never reset, so each step uses the sum of all gradients so far.

## What it finds
Three or more steps of one optimizer in which the new gradients were added to those of the previous step: between the
two steps, `.grad` was never `None` or zero when a gradient arrived.

## Why it hurts
The update follows the average direction since the start of training, and its size grows with every step. With clipping
or Adam it is hard to notice: the loss falls a little more slowly. Without clipping the norm grows without bound.

## Evidence
`stale_steps` of `steps`, `in_a_row`, and `threshold`, 3. The line is that of `optimizer.step()`.

## Fix
Call `optimizer.zero_grad()` once for each `step()`: right after it, or before the next backward.

## When it stays silent
- Gradient accumulation: the first micro-batch finds clean gradients.
- A GAN whose generator adds gradients to the discriminator, if they are reset before the discriminator's own backward.
- Gradients reset by `model.zero_grad()`, by a closure, or by setting them to `None`.
- Several optimizers over one model; steps without a backward.
- Gradients that the program assigns itself, such as those that `torch.autograd.grad()` returns: nothing was added.

## Cost
Under `watch()`, a small hook on three parameters of each optimizer.

## Lesson
[Lab 51](../../lessons/loop/51_second_phase.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.loop.optimizer_events import GradientUse, OptimizerEvents
from debugkit.loop.step_intervals import name_of
from debugkit.rule import Context, or_too_short, rule

_THRESHOLD = 3


@rule(
    "DK501",
    name="stale-gradients",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(OptimizerEvents,),
)
def judge(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    steps = max((len(_with_gradients(seen, number)) for number in range(len(seen.labels))), default=0)
    if not steps and max(seen.steps, default=0) > _THRESHOLD:
        raise NotExamined("No `backward()` has added a gradient to a parameter between two steps.")
    yield from or_too_short(_stale(seen, context), steps, _THRESHOLD, "step after the first", "steps after the first")


def _stale(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    for number in range(len(seen.labels)):
        uses = _with_gradients(seen, number)
        stale = [use for use in uses if not use.reset]
        if len(stale) < _THRESHOLD:
            continue
        yield context.finding(
            f"{name_of(seen, number)} made {len(stale):,} of {len(uses):,} steps with gradients that were "
            "added to those of the previous step: they were not reset in between.",
            at=stale[0].at,
            step=stale[0].step,
            evidence={
                "optimizer": number,
                "stale_steps": len(stale),
                "steps": len(uses),
                "in_a_row": _longest_run(uses),
                "threshold": _THRESHOLD,
            },
            fix="Call `optimizer.zero_grad()` once for each `optimizer.step()`, before the next `backward()`.",
        )


def _with_gradients(seen: OptimizerEvents, number: int) -> list[GradientUse]:
    """The steps of one optimizer after its first, for which a gradient arrived."""
    return [use for use in seen.uses if use.optimizer == number and use.step > 0 and use.accumulations > 0]


def _longest_run(uses: list[GradientUse]) -> int:
    longest = current = 0
    for use in uses:
        current = 0 if use.reset else current + 1
        longest = max(longest, current)
    return longest

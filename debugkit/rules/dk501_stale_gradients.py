"""An optimizer's gradients are never reset, so that each step uses the sum of all gradients so far.

## What it finds
Three or more steps of one optimizer, each with gradients that were added to those of its previous step: at no time
between the two steps did a new gradient find `None` or zeros.

## Why it hurts
The update follows the average direction since the start of training, and grows with every step. With clipping and Adam
it is nearly invisible: the loss falls a little worse. Without clipping the norm grows without end.

## Evidence
`stale_steps` of `steps`, `in_a_row`, and `threshold`, 3. The step line is that of `optimizer.step()`.

## Fix
`optimizer.zero_grad()` once for each `step()`: right after it, or before the first backward that follows.

## When it stays silent
Gradient accumulation (the first micro-batch finds clean gradients); a GAN, whose generator's backward adds gradients to
the discriminator that are wiped before its own backward; gradients reset by hand, by `model.zero_grad()` or by setting
them to `None`; several optimizers over one model; a closure that resets; steps without a backward.

## Cost
Under `watch()`: a small hook on three parameters of each optimizer.

## Lesson
[Lab 51](../../lessons/loop/51_stale_gradients.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.optimizer_events import GradientUse, OptimizerEvents
from debugkit.registry import Context, rule

_THRESHOLD = 3


@rule(
    "DK501",
    name="stale-gradients",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("watch",),
    needs=(OptimizerEvents,),
)
def judge(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    for number, label in enumerate(seen.labels):
        uses = [use for use in seen.uses if use.optimizer == number and use.step > 0 and use.accumulations > 0]
        stale = [use for use in uses if not use.reset]
        if len(stale) < _THRESHOLD:
            continue
        which = f"{label} (optimizer {number})" if len(seen.labels) > 1 else label
        yield context.finding(
            f"{which} stepped {len(stale)} times with gradients that were added to those of the step before: "
            "they were not reset in between.",
            at=stale[0].at,
            step=stale[0].step,
            evidence={
                "optimizer": number,
                "stale_steps": len(stale),
                "steps": len(uses),
                "in_a_row": _longest_run(uses),
                "threshold": _THRESHOLD,
            },
            fix="Call optimizer.zero_grad() once for each optimizer.step(), before the next backward().",
        )


def _longest_run(uses: list[GradientUse]) -> int:
    longest = current = 0
    for use in uses:
        current = 0 if use.reset else current + 1
        longest = max(longest, current)
    return longest

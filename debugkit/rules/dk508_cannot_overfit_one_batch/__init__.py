"""The model cannot overfit even a few samples.

## What it finds
Adam trains a copy of the model on a sixth of the batch, at least two samples, at learning rates 1e-2 and 1e-3, with
the same dropout, noise and time in every step. The better of the two loss curves is flat at its end, and still above
half of its start.

## Why it hurts
A model that cannot overfit a few samples cannot learn a data set either: neither more data nor more steps help. Usual
causes: an output that cannot reach its target (tanh before standardised actions), a cut gradient, a wrong loss, or one
input with two different targets.

## Evidence
The loss at the start and at the end, the decrease over the last third (the threshold is 2 %), the learning rate and the
number of samples.

## Fix
Run `debugkit.overfit_one_batch(model, batch)`. It checks the usual causes one by one, with more steps.

## When it stays silent
The loss falls below half of its start, or is still falling. The finding is only `info`, because a loss can have a
lower bound above zero (an entropy, a penalty, a contrastive loss). It is folded under another finding that explains
it.

## Cost
These are 72 steps on a sixth of the batch. The rule is skipped if other measurements have used up the budget; select
it alone to run it.

## Lesson
[Lab 55](../../lessons/loop/55_sixteen_too_many.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.short_training import OneBatchTraining
from debugkit.rule import Context, rule
from debugkit.rule_text import amounts_apart, counted

_FAR = 0.5
_FLAT = 0.02


@rule(
    "DK508",
    name="cannot-overfit-one-batch",
    severity=Severity.INFO,
    certainty=Certainty.HEURISTIC,
    modes=("check",),
    needs=(OneBatchTraining,),
    consequence_of=("DK103", "DK105", "DK002", "DK509", "DK201", "DK202"),
)
def judge(seen: OneBatchTraining, context: Context) -> Iterator[Finding]:
    first, last = seen.losses[0], seen.losses[-1]
    before = seen.losses[len(seen.losses) * 2 // 3]
    finite = all(math.isfinite(loss) for loss in (first, before, last))
    if not finite or first <= 0.0 or last <= _FAR * first:
        return
    fall = (before - last) / before if before > 0 else 0.0
    if fall >= _FLAT:
        return
    start, reached = amounts_apart(first, last)
    yield context.finding(
        f"A copy of the model cannot overfit {counted(seen.samples, 'sample')}: the loss went from {start} to "
        f"{reached} in {counted(len(seen.losses) - 1, 'step')} and no longer falls.",
        module="",
        evidence={
            "first": first,
            "last": last,
            "fall_over_last_third": fall,
            "threshold": _FLAT,
            "rate": seen.rate,
            "samples": seen.samples,
        },
        fix="Run `debugkit.overfit_one_batch(model, batch)`: it checks the usual causes one by one.",
    )

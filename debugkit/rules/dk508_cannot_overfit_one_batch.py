"""A copy of the model does not learn even a few samples by heart.

## What it finds
Adam trains a copy on a sixth of the batch, two samples at least, at 1e-2 and at 1e-3, with dropout, noise and time
drawn alike in every step. The better of the two curves is flat at its end, and still above half of where it began.

## Why it hurts
What cannot be learnt by heart is not learnt from a data set either: neither more data nor more steps help. Usual
reasons: an output that cannot reach its target (tanh before standardised actions), a cut gradient, a wrong loss, one
input with two answers.

## Evidence
The loss at the start and at the end, the fall over the last third against 2 %, the rate and the number of samples.

## Fix
`debugkit.overfit_one_batch(model, batch)` goes through the reasons one by one, with more steps.

## When it stays silent
A loss that falls below half, or is still falling. It is only `info`: a loss may have a floor of its own (an entropy, a
penalty, a contrastive loss). Another finding that explains it takes it in.

## Cost
72 steps on a sixth of the batch, 36 forward passes (of two samples at least: more for a batch below twelve). It is left
out where other experiments have used the budget up, and runs when selected alone.

## Lesson
[Lab 55](../../lessons/loop/55_cannot_overfit.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.short_training import OneBatchTraining
from debugkit.registry import Context, rule

_FAR = 0.5
_FLAT = 0.02


@rule(
    "DK508",
    name="cannot-overfit-one-batch",
    severity=Severity.INFO,
    certainty=Certainty.HEURISTIC,
    cost="nS",
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
    yield context.finding(
        f"{seen.samples} samples are not learnt by heart: the loss went from {first:.4g} to {last:.4g} in "
        f"{len(seen.losses) - 1} steps, and is flat.",
        evidence={
            "first": first,
            "last": last,
            "fall_over_last_third": fall,
            "threshold": _FLAT,
            "rate": seen.rate,
            "samples": seen.samples,
        },
        fix="Run debugkit.overfit_one_batch(model, batch): it says which of the usual reasons it is.",
    )

"""A loss compares every prediction with every target, because the two shapes broadcast.

## What it finds
A prediction and a target of different shape in one loss: `(B, 1)` against `(B,)` becomes `(B, B)`, each sample held
against the targets of all others. Loss functions and differences taken by hand (`(a - b) ** 2`) are both seen.

## Why it hurts
Nothing fails. The loss falls until the model predicts the mean of the targets and stays at their variance, which looks
like a model too small or a learning rate too low. `F.mse_loss` at least warns; a subtraction does not.

## Evidence
The two shapes, the shape they are compared in, and how many pairs that is against how many there should be.

## Fix
Give both the same shape before comparing: `prediction.squeeze(-1)` where the last dimension is 1, or `target[:, None]`.
Flattening the difference afterwards is too late.

## When it stays silent
Equal shapes; shapes that differ only by dimensions of size 1 that add no pair (a batch of one); differences that never
become a scalar with a gradient (relative positions, metrics); differences between two predictions or two constants;
statistics taken off before the comparison; scalars; operands whose
singleton dimension was put in on purpose just before, if both have the same number of dimensions (pairwise distances).

## Cost
Free: it listens while a step runs. Under `watch()` during the first three steps.

## Lesson
[Lab 03](../../lessons/shapes/03_silent_broadcast.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.loss_operands import Comparison, LossOperands, Shape
from debugkit.registry import Context, rule


@rule(
    "DK002",
    name="silent-broadcast",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check", "watch"),
    needs=(LossOperands,),
)
def judge(loss: LossOperands, context: Context) -> Iterator[Finding]:
    for seen in loss.comparisons:
        intended = max(math.prod(seen.first), math.prod(seen.second))
        compared = f"{seen.operation} compares {_text(seen.first)} with {_text(seen.second)}"
        evidence = {
            "first": list(seen.first),
            "second": list(seen.second),
            "compared_as": list(seen.broadcast),
            "pairs": seen.pairs,
            "intended_pairs": intended,
        }
        if seen.crossed:
            pairs = f"{seen.pairs:,} pairs instead of {intended:,}"
            yield context.finding(
                f"{compared}, which broadcast to {_text(seen.broadcast)}: {pairs}.",
                at=seen.at,
                evidence=evidence,
                fix=_fix(seen),
            )
        elif seen.repeated and not seen.outer:
            yield context.finding(
                f"{compared}: one of them is repeated.",
                at=seen.at,
                evidence=evidence,
                fix="Give both the same shape, or repeat the smaller one with expand() to say that it is meant.",
                severity=Severity.WARNING,
                certainty=Certainty.HEURISTIC,
            )


def _fix(seen: Comparison) -> str:
    longer = seen.first if len(seen.first) > len(seen.second) else seen.second
    which = "first" if longer is seen.first else "second"
    if longer[-1] == 1:
        return f"Drop the last dimension of the {which} operand before comparing: x.squeeze(-1)."
    return f"Reshape the {which} operand to the shape of the other before comparing."


def _text(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"

"""Accumulating micro-batches does not give the gradient of the whole batch.

## What it finds
A difference between the gradient of the whole batch and the accumulated gradient, which is the mean of the gradients
of the micro-batches, in eval mode: more than 1e-7 in float64, or ten times the rounding error of the model's own
dtype. The cause is a loss that is a sum, or a mean over something that the micro-batches contain in unequal numbers,
such as valid tokens or unpadded actions.

## Why it hurts
With a mean of means, short answers get more weight, and the weight depends on how the batch is split. With a sum, the
step size depends on the number of micro-batches. The curves for 1 and 8 micro-batches differ, and the learning rate is
suspected.

## Evidence
The cosine, the ratio of the norms, the relative difference and its floor, and the parameter that differs most.

## Fix
Sum the loss in each micro-batch, and divide by the number of valid tokens in all micro-batches.

## When it stays silent
- Micro-batches with equal counts; a loss divided by a number that does not depend on the split.
- `coupled_batch` is declared: a contrastive loss is not a sum over samples.

It is examined only if `Declare(accumulation=4)` states that the loop accumulates, and not if the loss draws random
noise. If your trainer passes `num_items_in_batch`, use a `loss_fn` that passes it too.

## Cost
Only where an accumulation is declared: a forward and a backward pass of the whole batch, and the same once more in
micro-batches.

## Lesson
[Lab 53](../../lessons/loop/53_same_frames.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amounts_apart


@measured_by(".measure:split_the_batch", cost=6, requires=("batch",), declared="accumulation")
@dataclass(frozen=True, slots=True)
class AccumulatedGradient:
    """The gradient of the whole batch and the accumulated gradient, compared over all trainable parameters."""

    parts: int
    cosine: float
    ratio: float
    """Norm of the accumulated gradient, divided by that of the whole batch."""
    difference: float
    """Norm of their difference, divided by that of the whole batch."""
    floor: float
    double: bool
    """Whether it was computed in float64, and not in the model's own dtype."""
    parameter: str
    """The parameter with the largest difference, by norm."""


_SAME_DIRECTION = 1 - 1e-9


@rule(
    "DK507",
    name="accumulation-scale",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(AccumulatedGradient,),
)
def judge(seen: AccumulatedGradient, context: Context) -> Iterator[Finding]:
    if context.declare.coupled_batch:
        raise NotExamined(
            "The samples of a batch are declared to influence each other, so micro-batches cannot add up to the batch."
        )
    if seen.difference <= seen.floor:
        return
    only_scale = seen.cosine >= _SAME_DIRECTION
    ratio, cosine = amounts_apart(seen.ratio, 1.0)[0], amounts_apart(seen.cosine, 1.0)[0]
    what = (
        f"has {ratio} times the norm of the whole batch's gradient: the loss is not a mean over the samples"
        if only_scale
        else f"differs from the whole batch's gradient (the cosine is {cosine}, and the norm is {ratio} times as "
        "large): "
        "the losses of the micro-batches are means over unequal counts"
    )
    yield context.finding(
        f"The gradient accumulated over {seen.parts} micro-batches {what}.",
        parameter=seen.parameter,
        evidence={
            "parts": seen.parts,
            "cosine": seen.cosine,
            "ratio": seen.ratio,
            "difference": seen.difference,
            "threshold": seen.floor,
            "float64": seen.double,
        },
        fix="Sum the loss of each micro-batch, and divide by the number of valid targets in all micro-batches.",
    )

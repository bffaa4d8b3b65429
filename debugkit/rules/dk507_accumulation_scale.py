"""Accumulating micro-batches does not give the gradient of the whole batch.

## What it finds
The gradient of the batch, against the sum of the gradients of its parts, each divided by their number, in float64 and
eval mode. They differ by more than 1e-7: the loss is a sum, or a mean over something that the parts hold unequally
much of, such as valid tokens or unpadded actions.

## Why it hurts
With a mean of means, short answers count more, the more so the finer the batch is cut; with a sum, the step grows or
shrinks with the number of parts. Curves at 1 and 8 micro-batches differ, and the learning rate is blamed.

## Evidence
Cosine, ratio of the norms, relative difference and its floor, and the parameter that differs most.

## Fix
Sum the loss in each micro-batch and divide by the count of valid tokens of all of them.

## When it stays silent
Equal counts; a loss divided by a number that does not depend on the batch's cut; `coupled_batch` declared (contrastive
losses are not a sum over samples). It is not examined unless `Declare(accumulation=4)` says that the loop accumulates,
nor where the loss draws noise. Where a trainer passes `num_items_in_batch`, hand in a `loss_fn` that does so too.

## Cost
Two forward and backward passes of the whole batch.

## Lesson
[Lab 53](../../lessons/loop/53_accumulation.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.accumulated_gradient import AccumulatedGradient
from debugkit.registry import Context, rule

_SAME_DIRECTION = 1 - 1e-9


@rule(
    "DK507",
    name="accumulation-scale",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="2S",
    modes=("check",),
    needs=(AccumulatedGradient,),
)
def judge(seen: AccumulatedGradient, context: Context) -> Iterator[Finding]:
    if context.declare.coupled_batch:
        raise NotExamined("The samples of a batch are declared to influence each other, so parts are not the whole.")
    if seen.difference <= seen.floor:
        return
    only_scale = seen.cosine >= _SAME_DIRECTION
    what = (
        f"is {seen.ratio:.4g} times as long: the loss is not a mean over the samples"
        if only_scale
        else f"is another (cosine {seen.cosine:.4f}, {seen.ratio:.4g} times as long): the parts are means over unequal "
        "counts"
    )
    yield context.finding(
        f"Accumulated over {seen.parts} micro-batches, the gradient {what}.",
        parameter=seen.parameter,
        evidence={
            "parts": seen.parts,
            "cosine": seen.cosine,
            "ratio": seen.ratio,
            "difference": seen.difference,
            "threshold": seen.floor,
            "float64": seen.double,
        },
        fix="Sum the loss of each micro-batch and divide by the number of valid targets in all of them.",
    )

"""A sample's output depends on the other samples of its batch, in evaluation mode.

## What it finds
Rows of the output that move when sample 0 of the batch is replaced by another sample, with dropout off and every random
draw the same.

## Why it hurts
The model is trained on something the robot does not have: other people's frames. Typical causes are a
softmax, a mean, a norm or a `view` over the batch dimension, and a mask or position computed once for the whole batch.
Training loss looks better than it is, and an answer changes with the batch size.

## Evidence
`moved`, the largest relative movement of any other row, against `floor`: ten times the difference of two
identical passes, and at least 1e-5. `module` is the first one, in order of execution, whose rows for other samples
moved.

## Fix
Find the operation over dimension 0 in that module and make it work on each sample: name the dimension
(`dim=-1`), or keep the batch dimension when reshaping.

## When it stays silent
BatchNorm in eval mode, dropout, random sampling (all draws are repeated), losses that couple a
batch, and anything below the floor. A coupling that is declared (`Declare(coupled_batch=True)`), or that has the form
of a similarity matrix (B, B) with only column 0 moved, is reported as `info`.

## Cost
Three forward passes, and two more on a hit.

## Lesson
[Lab 43](../../lessons/actions/43_queue_axis.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.batch_independence import BatchIndependence
from debugkit.registry import Context, rule


@rule(
    "DK305",
    name="batch-leak",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="3F",
    modes=("check",),
    needs=(BatchIndependence,),
)
def judge(seen: BatchIndependence, context: Context) -> Iterator[Finding]:
    if seen.moved <= seen.floor:
        return
    evidence = {
        "moved": seen.moved,
        "floor": seen.floor,
        "rows_moved": seen.rows_moved,
        "batch_size": seen.batch_size,
        "output": seen.output,
    }
    if context.declare.coupled_batch or seen.one_column:
        yield context.finding(
            f"Samples of a batch influence each other (by {seen.moved:.2g} of the output), as in contrastive models.",
            module=seen.module,
            evidence=evidence,
            fix="Nothing, if that is meant.",
            severity=Severity.INFO,
        )
        return
    others = f"{seen.rows_moved} other sample{'s' * (seen.rows_moved != 1)}"
    yield context.finding(
        f"Replacing sample 0 moved the output of {others} by up to {seen.moved:.2g} of its size; none may move.",
        module=seen.module,
        evidence=evidence,
        fix="Look in this module for an operation over dimension 0 (softmax, mean, norm, view); make it per sample.",
    )

"""The labels are shifted in the data, and the loss shifts them again.

## What it finds
Labels that are the next tokens already (label t is token t + 1), given to a loss that compares output t with label t
+ 1.

## Why it hurts
The model learns to predict the token after the next one. Loss and perplexity look like any other training run's;
generation skips every other token.

## Evidence
`labels_are_next_ids` from reading the batch, and `loss_shifts`: another first label in each row leaves the loss as it
is, bit for bit, so the loss never reads it.

## Fix
Hand Hugging Face models the ids themselves, `labels=input_ids` with -100 where nothing is to be learnt: they shift.
Or shift in the data and compute the loss yourself.

## When it stays silent
Labels that are the ids, whatever the loss does; labels that are the next ids with a loss that does not shift; texts
of one repeated token.

## Cost
Two forward passes, and two that all experiments share.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.label_alignment import LabelAlignment
from debugkit.registry import Context, rule


@rule(
    "DK314",
    name="labels-shifted-twice",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="4F",
    modes=("check",),
    needs=(LabelAlignment,),
)
def judge(seen: LabelAlignment, context: Context) -> Iterator[Finding]:
    if not (seen.labels_are_next_ids and seen.loss_shifts):
        return
    yield context.finding(
        f"All {seen.supervised} labels are the next token already, and the loss shifts them once more.",
        evidence={
            "labels_are_next_ids": seen.labels_are_next_ids,
            "loss_shifts": seen.loss_shifts,
            "supervised": seen.supervised,
        },
        fix="Pass the token ids as labels (-100 where nothing is learnt): this loss does the shift.",
    )

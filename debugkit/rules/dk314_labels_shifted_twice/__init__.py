"""The labels are shifted in the data, and the loss shifts them again.

## What it finds
Labels that are already the next tokens (label t is token t + 1), together with a loss that compares output t with label
t + 1.

## Why it hurts
The model learns to predict the token after the next one. Loss and perplexity look like those of any other training run,
but generation skips every other token.

## Evidence
`labels_are_next_ids`, read from the batch, and `loss_shifts`: changing the first label of each row leaves the loss the
same, bit for bit, so the loss does not use it.

## Fix
Pass the token ids themselves to Hugging Face models, `labels=input_ids` with -100 where nothing should be learnt: these
models shift internally. Or shift in the data and compute the loss yourself.

## When it stays silent
Labels that equal the ids, with any loss; labels that are the next ids, with a loss that does not shift; texts that
repeat a single token.

## Cost
Two more passes measure the floor; all rules that need it share them.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.label_alignment import LabelAlignment
from debugkit.rule import Context, rule


@rule(
    "DK314",
    name="labels-shifted-twice",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "call"),
    needs=(LabelAlignment,),
)
def judge(seen: LabelAlignment, context: Context) -> Iterator[Finding]:
    if not (seen.labels_are_next_ids and seen.loss_shifts):
        return
    yield context.finding(
        f"All {seen.supervised:,} labels are already the next token, and the loss shifts them again.",
        input=seen.path,
        evidence={
            "labels_are_next_ids": seen.labels_are_next_ids,
            "loss_shifts": seen.loss_shifts,
            "supervised": seen.supervised,
        },
        fix="Pass the token ids as labels (-100 where nothing should be learnt): this loss shifts them itself.",
    )

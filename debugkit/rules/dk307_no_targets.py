"""There is nothing to learn in the labels: all are ignored, or all say the same.

## What it finds
Labels that the loss ignores to the last one, and targets of one single value.

## Why it hurts
With nothing counted the loss is NaN or a silent 0.0; LLaVA users saw the latter for whole runs, where the prompt
template and the tokenizer disagreed and masked every answer. With one value the model learns a constant, and the loss
looks wonderful.

## Evidence
How many targets the batch has, how many are ignored, how many values the rest has. One value is reported from 16
targets on.

## Fix
Decode the targets of one sample and compare them with the answer you meant. Look at the code that writes -100, at
truncation, and at the column the labels are read from.

## When it stays silent
Some samples without targets, small batches that happen to be of one class, padding. One class of many samples is
`info`: rare classes make such batches. Ignored means below zero (-100, -1).

## Cost
Free: the batch is read.

## Lesson
[Lab 32](../../lessons/data/32_padded_labels.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.targets import Targets
from debugkit.registry import Context, rule

ENOUGH = 16
"""Two balanced classes give so many equal labels once in 30,000 batches."""


@rule(
    "DK307",
    name="no-targets",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check",),
    needs=(Targets,),
)
def judge(seen: Targets, context: Context) -> Iterator[Finding]:
    for each in seen.tensors:
        counted = each.total - each.ignored
        evidence = {
            "targets": each.total,
            "ignored": each.ignored,
            "distinct_values": each.distinct,
            "path": each.path,
            "threshold": ENOUGH,
        }
        if each.total and not counted:
            yield context.finding(
                f"All {each.total} values of {each.path} are ignored: the loss has nothing to learn from.",
                evidence=evidence,
                fix="Decode what was meant as the answer, and find where it is overwritten with the ignored value.",
            )
        elif each.distinct == 1 and counted >= ENOUGH:
            class_of_samples = each.whole_numbers and not each.per_token
            yield context.finding(
                f"All {counted} counted values of {each.path} are {each.value:g}.",
                evidence=evidence,
                fix=f"Check where {each.path} comes from, and that the loader shuffles.",
                severity=Severity.INFO if class_of_samples else Severity.WARNING,
                certainty=Certainty.STATISTICAL,
            )

"""The labels contain nothing to learn: all are ignored, or all are equal.

## What it finds
Labels that the loss ignores without exception, and targets that consist of a single value.

## Why it hurts
If no label counts, the loss is NaN or a silent 0.0. LLaVA users had the latter for whole runs, because the prompt
template and the tokenizer did not match and every answer was masked. With a single value the model learns a constant,
and the loss looks excellent.

## Evidence
How many targets the batch has, how many are ignored, and how many different values the others have. A single value is
reported from 16 targets on.

## Fix
Decode the targets of one sample and compare them with the intended answer. Check the code that writes -100, the
truncation, and the column that the labels are read from.

## When it stays silent
Samples without targets next to others with targets, small batches that happen to contain one class, and padding. One
class in many samples is `info`, because rare classes produce such batches. Ignored labels are those below zero
(-100, -1).

## Lesson
[Lab 32](../../lessons/data/32_likes_company.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import entry_name, verb


@dataclass(frozen=True, slots=True)
class TargetValues:
    """One tensor of targets."""

    path: str
    total: int
    ignored: int
    """The number of labels below zero, which a loss leaves out; 0 for actions."""
    distinct: int
    """How many different values the other targets have."""
    value: float
    """The first value that is not ignored; NaN if all are."""
    whole_numbers: bool
    rows: int
    per_token: bool
    """Whether there are several labels per sample."""


@measured_by(".measure:read_the_targets", cost=0, requires=("batch",))
@dataclass(frozen=True, slots=True)
class Targets:
    """The labels and the target action of the batch, if present."""

    tensors: tuple[TargetValues, ...]
    made_at: SourceLine | None = None
    """The program's function that puts a batch of the training loader together."""


ENOUGH = 16
"""With two balanced classes, this many equal labels occur once in 30,000 batches."""


@rule(
    "DK307",
    name="no-targets",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(Targets,),
)
def judge(seen: Targets, context: Context) -> Iterator[Finding]:
    for each in seen.tensors:
        considered, name = each.total - each.ignored, entry_name(each.path, "the target")
        evidence = {
            "targets": each.total,
            "ignored": each.ignored,
            "distinct_values": each.distinct,
            "path": each.path,
            "threshold": ENOUGH,
        }
        if each.total and not considered:
            values = "The only value" if each.total == 1 else f"All {each.total:,} values"
            yield context.finding(
                f"{values} of {name} {verb(each.total, 'is', 'are')} ignored: there is nothing to learn.",
                input=each.path,
                at=seen.made_at,
                evidence=evidence,
                fix="Decode the intended answer, and find the code that overwrites it with the ignored value.",
            )
        elif each.distinct == 1 and considered >= ENOUGH:
            class_of_samples = each.whole_numbers and not each.per_token
            counting = " that are not ignored" if each.ignored else ""
            yield context.finding(
                f"All {considered:,} values of {name}{counting} are {each.value:g}.",
                input=each.path,
                at=seen.made_at,
                evidence=evidence,
                fix=f"Check where {name} comes from, and that the loader shuffles.",
                severity=Severity.INFO if class_of_samples else Severity.WARNING,
                certainty=Certainty.STATISTICAL,
            )

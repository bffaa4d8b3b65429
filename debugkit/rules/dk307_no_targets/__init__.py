"""The labels contain nothing to learn: all are ignored, or all are equal.

## What it finds
Labels that the loss ignores without exception, and targets that consist of a single value, in the batch or in all
samples of the training loader.

## Why it hurts
If no label counts, the loss is NaN or a silent 0.0. LLaVA users had the latter for whole runs, because the prompt
template and the tokenizer did not match and every answer was masked. With a single value the model learns a constant,
and the loss looks excellent.

## Evidence
How many targets the batch has, how many are ignored, and how many different values the others have. A single value is
reported from 16 targets on.

Where all samples of the batch have the same number as their target, the loader is read on, up to 512 samples, until
another one is found. The finding says whether these are all samples. If they are not, only a loader that draws at
random is judged: if one sample of 100 had another target, 512 samples without one would be drawn with a probability of
0.6 %. Two passes, with this target and with another one, must give different losses and equal outputs: the loss reads
it, and it is not an input.

## Fix
Decode the targets of one sample and compare them with the intended answer. Check the code that writes -100, the
truncation, and the column that the labels are read from.

## When it stays silent
Samples without targets next to others with targets, small batches that happen to contain one class, and padding. One
class in many samples of a batch is `info`, because rare classes produce such batches. Ignored labels are those below
zero (-100, -1).

Of the loader: a target that the loss does not read (one-class training), a label that is also an input, a model that
returns only its loss, and equal inputs. Also 0, 1 or -1 as a target in floating point, which may state what all samples
have in common (a residual, the first of two that should rank higher), unless a binary cross-entropy reads it: there it
is a class.

## Cost
Two passes, and only where all targets of the batch are equal.

## Lesson
[Lab 32](../../lessons/data/32_likes_company.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
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


@measured_by(".measure:read_the_loader", cost=0, requires=("batch", "dataloader"))
@dataclass(frozen=True, slots=True)
class EqualTargets:
    """One number that every sample of the training loader read has as its target, while its inputs differ."""

    path: str
    value: float
    samples: int
    complete: bool
    """Whether these are all samples of the loader."""
    random_order: bool
    """Whether the loader draws its samples at random."""
    made_at: SourceLine | None = None


RARE = 0.01
"""A share of other targets that 512 samples would not miss by chance: (1 - 0.01)^512 is 0.6 %."""
CHANCE = 0.01
ENOUGH = 16
"""With two balanced classes, this many equal labels occur once in 30,000 batches."""


@rule(
    "DK307",
    name="no-targets",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(),
    uses=(Targets, EqualTargets),
)
def judge(seen: Targets | None, equal: EqualTargets | None, context: Context) -> Iterator[Finding]:
    if seen is None and equal is None:
        raise NotExamined("The batch has neither labels nor a target action: pass Declare(labels=…) or target=….")
    certain = equal if equal is not None and _is_certain(equal) else None
    if seen is not None:
        yield from _of_the_batch(seen, certain.path if certain else None, context)
    if certain is not None:
        yield _of_the_loader(certain, context)


def _is_certain(seen: EqualTargets) -> bool:
    if seen.samples < ENOUGH:
        return False
    return seen.complete or (seen.random_order and (1 - RARE) ** seen.samples < CHANCE)


def _of_the_loader(seen: EqualTargets, context: Context) -> Finding:
    name = entry_name(seen.path, "the target")
    chance = (1 - RARE) ** seen.samples
    which = f"All {seen.samples:,} samples of the training loader have {seen.value:g} as {name}"
    drawn = (
        f"The first {seen.samples:,} samples of the training loader have {seen.value:g} as {name}; if one sample of "
        f"100 had another value, this would have a probability of {chance:.1g}"
    )
    return context.finding(
        f"{which if seen.complete else drawn}. Their inputs differ.",
        input=seen.path,
        at=seen.made_at,
        evidence={
            "path": seen.path,
            "value": seen.value,
            "samples": seen.samples,
            "complete": seen.complete,
            "threshold": ENOUGH,
        },
        fix=f"Check the index or column that {name} is read with.",
        severity=Severity.WARNING,
        certainty=Certainty.PROOF if seen.complete else Certainty.STATISTICAL,
    )


def _of_the_batch(seen: Targets, known: str | None, context: Context) -> Iterator[Finding]:
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
        elif each.distinct == 1 and considered >= ENOUGH and each.path != known:
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

"""Samples of the validation data are also trained on.

## What it finds
The same index of one data set, or the same content, in the training loader and in another loader. Where the length of
an input differs between batches, its padding does not count.

## Why it hurts
Validation then measures memorisation. The curve looks fine, early stopping comes too late, and the fault only shows on
the robot.

## Evidence
How many samples of each loader were compared, by index or by content, how many are shared, and how many training
samples repeat within the training data itself.

## Fix
Split once, by episode and not by frame, and keep the split in a file. Neighbouring frames are nearly equal, and a split
by frame passes this check.

## When it stays silent
Data whose inputs repeat by nature: training samples repeat among themselves as often as validation repeats them. Blank
samples and samples with less than 16 bytes of input are not compared. Augmented images differ in every draw and are not
recognised, unless both loaders use parts (`Subset`) of one data set.

## Cost
Nothing is read if indices suffice. Otherwise each loader is read, up to 256 batches or 2,048 samples.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, verb


@dataclass(frozen=True, slots=True)
class DataOverlap:
    """Two loaders compared, by index where both are parts of one data set, by content otherwise."""

    train: str
    other: str
    by_index: bool
    train_samples: int
    other_samples: int
    """How many samples of the other loader were compared."""
    shared: int
    """How many of them are training samples as well."""
    repeated: float
    """The share of training samples that repeat an earlier training sample; 0 if compared by index."""
    complete: bool
    """Whether all samples were compared."""
    made_at: SourceLine | None = None
    """The program's function that makes the samples of the other loader."""


@measured_by(".measure:compare_loaders", cost=0, requires=("dataloader",))
@dataclass(frozen=True, slots=True)
class DataOverlaps:
    """The training loader compared with every other loader."""

    pairs: tuple[DataOverlap, ...]


@rule(
    "DK311",
    name="train-validation-overlap",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("loader",),
    needs=(DataOverlaps,),
)
def judge(seen: DataOverlaps, context: Context) -> Iterator[Finding]:
    for pair in seen.pairs:
        share = pair.shared / max(pair.other_samples, 1)
        if not pair.shared or share <= 2 * pair.repeated:
            continue
        way = "by index" if pair.by_index else "by content"
        samples = f"{pair.shared:,} of {counted(pair.other_samples, 'sample')} of the {pair.other} loader"
        yield context.finding(
            f"{samples} {verb(pair.shared, 'is', 'are')} also in the train loader (compared {way}).",
            at=pair.made_at,
            evidence={
                "shared": pair.shared,
                "train_samples": pair.train_samples,
                f"{pair.other}_samples": pair.other_samples,
                "share": share,
                "threshold": 2 * pair.repeated,
                "complete": pair.complete,
            },
            fix="Split the data once, by episode, before any loader is created.",
            # If training samples repeat, some repetition across the split is expected.
            severity=None if pair.repeated == 0 else Severity.WARNING,
            certainty=None if pair.repeated == 0 else Certainty.STATISTICAL,
        )

"""Samples of the validation data are also trained on.

## What it finds
The same index of one data set, or the same content, in the training loader and in another one.

## Why it hurts
Validation then measures memory. The curve looks fine, early stopping stops too late, and the robot shows the
difference.

## Evidence
How many samples of each loader were compared, by index or by content, how many are shared, and how many training
samples repeat within training anyway.

## Fix
Split once, by episode and not by frame (neighbouring frames are nearly the same and pass this check), and keep the
split in a file.

## When it stays silent
Data whose inputs repeat by nature: when training samples repeat among themselves as often as validation repeats them.
Blank samples and samples with less than 16 bytes of input are not compared. Augmented images differ in every draw and
are not recognised, unless both loaders are parts (`Subset`) of one data set.

## Cost
Free where indices answer; otherwise each loader is read, 256 batches or 2,048 samples at most.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.data_overlap import DataOverlaps
from debugkit.registry import Context, rule


@rule(
    "DK311",
    name="train-validation-overlap",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("loader",),
    needs=(DataOverlaps,),
)
def judge(seen: DataOverlaps, context: Context) -> Iterator[Finding]:
    for pair in seen.pairs:
        share = pair.shared / max(pair.other_samples, 1)
        if not pair.shared or share <= 2 * pair.repeated:
            continue
        way = "by index" if pair.by_index else "by content"
        yield context.finding(
            f"{pair.shared} of {pair.other_samples} samples of the {pair.other} loader are trained on ({way}).",
            evidence={
                "shared": pair.shared,
                "train_samples": pair.train_samples,
                f"{pair.other}_samples": pair.other_samples,
                "share": share,
                "threshold": 2 * pair.repeated,
                "complete": pair.complete,
            },
            fix="Split the data once, by episode, before any loader is made.",
            # Where training repeats itself, some repetition across the split is to be expected.
            severity=None if pair.repeated == 0 else Severity.WARNING,
            certainty=None if pair.repeated == 0 else Certainty.STATISTICAL,
        )

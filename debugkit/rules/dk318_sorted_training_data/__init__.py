"""The training data are sorted by class and the loader does not shuffle, so most batches hold one class.

## What it finds
A training loader that reads a map-style data set in order (`shuffle=False`, the default), while the same label comes in
runs that are longer than a batch.

## Why it hurts
A data set that is read from one folder per class is sorted by class. Each batch then trains the model to answer a
single class, and the next ones to forget it. The loss is small within a class and jumps where the next one begins. The
running statistics of BatchNorm belong to the last class.

## Evidence
How often two samples that are one batch apart have different labels (`different`), and how often they would after a
shuffle, from the frequencies of the classes. `log10_p` is the probability of so few after a shuffle; the threshold
is -9.

## Fix
Pass `shuffle=True` to the DataLoader, or shuffle the list of samples once when the data set is built.

## When it stays silent
- A loader that draws at random. A sampler or batch sampler of your own, and iterable data sets, are not examined: they
  may shuffle.
- Classes that are only unbalanced, and runs shorter than a batch: pairs and triplets that are neighbours on purpose.
  With a batch size below 16, samples that are 15 apart are compared.
- Overlapping windows of one recording, targets that are numbers or sequences, and more than 1,000 classes.
- Fewer than 128 samples, or fewer than four batches.
- Loaders that are not passed under the name `train`, except for the only one.

## Cost
Reads up to 160 pairs of samples from the data set, with at most two of the loader's workers.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import entry_name


@measured_by(".measure:read_pairs_of_samples", cost=0, requires=("dataloader",))
@dataclass(frozen=True, slots=True)
class LabelOrder:
    """The labels of pairs of samples of the training loader's data set."""

    path: str
    samples: int
    batch_size: int
    distance: int
    """Between the two samples of a pair: they are the ends of a batch, or 15 samples apart in smaller batches."""
    pairs: int
    different: int
    """The number of pairs with two different labels."""
    classes: int
    after_shuffle: float
    """The probability that two random samples have different labels."""
    log10_p: float
    """The probability of at most this many different pairs after a shuffle, as a power of ten."""
    overlapping: bool
    """Whether the inputs of neighbours are windows of one recording that overlap."""
    made_at: SourceLine | None
    shuffles: bool = False
    """Whether the loader draws its samples at random; then no pair was read."""

    @classmethod
    def shuffled(cls, samples: int, batch_size: int) -> LabelOrder:
        """The order of a loader that shuffles."""
        return cls("", samples, batch_size, 0, 0, 0, 0, 0.0, 0.0, False, None, shuffles=True)


IMPROBABLE = -9.0
FEWEST = 128
MOST_CLASSES = 1000
BATCHES = 4


@rule(
    "DK318",
    name="sorted-training-data",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("loader",),
    needs=(LabelOrder,),
)
def judge(seen: LabelOrder, context: Context) -> Iterator[Finding]:
    if seen.shuffles:
        return
    if seen.samples < FEWEST or seen.samples < BATCHES * seen.batch_size:
        raise NotExamined(
            f"The data set has {seen.samples:,} samples, but the test needs {max(FEWEST, BATCHES * seen.batch_size):,}."
        )
    if seen.classes < 2 or seen.classes > MOST_CLASSES:
        raise NotExamined(f"The test needs from two to {MOST_CLASSES:,} classes, but found {seen.classes:,}.")
    if seen.log10_p > IMPROBABLE or seen.overlapping:
        return
    expected = seen.after_shuffle * seen.pairs
    yield context.finding(
        f"The training loader does not shuffle, and its data set is sorted by {entry_name(seen.path, 'the label')}: of "
        f"{seen.pairs} pairs of samples that are {seen.distance} apart, {seen.different} have different labels, but "
        f"about {expected:.0f} would after a shuffle.",
        at=seen.made_at,
        input=seen.path,
        evidence={
            "different": seen.different,
            "pairs": seen.pairs,
            "expected": expected,
            "log10_p": seen.log10_p,
            "threshold": IMPROBABLE,
            "batch_size": seen.batch_size,
            "classes": seen.classes,
        },
        fix="Pass `shuffle=True` to the DataLoader.",
    )

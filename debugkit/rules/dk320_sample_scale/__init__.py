"""A few samples of the training data are hundreds of times as large as all others, as if in another unit.

## What it finds
Samples among the first 32 batches of a training loader whose values, as a root mean square over an entry of the batch,
are at least 300 times as large as those of nine samples in ten. They are at most a tenth of at least 16 samples.

## Why it hurts
The squared error of such a sample, and its gradient, are 100,000 times as large as those of the others: one batch in an
epoch undoes the steps between. Where gradients are clipped or inputs are normalised, nothing is seen but a batch that
teaches nothing. Statistics that are computed over the data set are wrong for all other samples. Typical causes are one
recording in millimetres among others in metres, and a batch of raw sensor ticks.

## Evidence
The number of such samples, the largest, the size below which nine of ten samples are, the ratio, and the threshold.

## Fix
Look at these samples, and convert their unit where they are read. If they are right, compress the values (a logarithm,
or quantiles), or clip them.

## When it stays silent
- One number per sample: a reward of 100 at the end of an episode among rewards of 0.01.
- Entries in which most samples are 0; integers; masks.
- Values with heavy tails, such as a log-normal distribution with a deviation of two.
- Data in which more than a tenth of the samples are large: two groups of samples.

## Cost
Reads at most 32 batches.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, counted, entry_name, listed, verb


@dataclass(frozen=True, slots=True)
class SampleSizes:
    """The sizes, each a root mean square, of the samples' values in one entry of the batch."""

    path: str
    samples: int
    usual: float
    """The 90th percentile of the samples' sizes."""
    largest: float
    large: tuple[tuple[int, int], ...]
    """The batch and the row of each sample that is at least 300 times as large as `usual`."""


@measured_by(".measure:read_the_samples", cost=0, requires=("dataloader",))
@dataclass(frozen=True, slots=True)
class SampleScales:
    """One entry for each floating-point entry with several values per sample."""

    entries: tuple[SampleSizes, ...]
    made_at: SourceLine | None = None
    """The line that makes the samples or the loader, where the program has only one."""


APART = 300.0
SHARE = 0.1
FEWEST = 16
_NAMED = 4


@rule(
    "DK320",
    name="sample-scale",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("loader",),
    needs=(SampleScales,),
)
def judge(seen: SampleScales, context: Context) -> Iterator[Finding]:
    enough = [entry for entry in seen.entries if entry.samples >= FEWEST and entry.usual > 0.0]
    if not enough:
        raise NotExamined(f"No entry of the loader has {FEWEST} samples with several floating-point values each.")
    for entry in enough:
        if not entry.large or len(entry.large) > SHARE * entry.samples:
            continue
        places = [f"batch {batch}, row {row}" for batch, row in entry.large[:_NAMED]]
        more = f" and {len(entry.large) - _NAMED} more" if len(entry.large) > _NAMED else ""
        yield context.finding(
            f"{counted(len(entry.large), 'sample')} of {entry.samples} {verb(len(entry.large), 'is', 'are')} up to "
            f"{amount(entry.largest / entry.usual)} times as large as the others in {entry_name(entry.path)}: "
            f"{listed(places)}{more}.",
            at=seen.made_at,
            input=entry.path,
            evidence={
                "samples": entry.samples,
                "large": len(entry.large),
                "largest": entry.largest,
                "nine_in_ten_below": entry.usual,
                "ratio": entry.largest / entry.usual,
                "threshold": APART,
            },
            fix="Look at these samples, and convert their unit where they are read.",
        )

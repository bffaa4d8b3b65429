"""The targets cannot be told from the inputs any better than shuffled targets.

## What it finds
A permutation test over the training loader's first samples: targets are fitted from the inputs, leaving one sample
out each time, and so are 199 shuffles of them. Here the true ones were fitted no better.

## Why it hurts
Inputs and targets that were paired wrongly (sorted apart, joined on the wrong key, shifted by an episode) still
train: the loss falls to that of the average, and memorises from there.

## Evidence
The leave-one-out error of the true targets and of the shuffled ones, as a share of their variance, and the share of
shuffles that were fitted as well (`p_value`, against 0.05).

## Fix
Look at ten samples with your own eyes: image, instruction and action of the same row. Then at the code that joins
them.

## When it stays silent
Whenever anything of the target shows in pooled pixels, words and states, or in products of two of them: one noisy
relation in ten dimensions is enough. What shows in finer details only is not seen; that is why this is `info`. Texts,
more than 64 classes, and fewer than 128 samples are not examined.

## Cost
Free of forward passes: 512 samples of the loader are read, and fitted in closed form.

## Lesson
No lab of its own; [Lab 55](../../lessons/loop/55_cannot_overfit.md) goes through what else keeps a loss up.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.label_information import LabelInformation
from debugkit.registry import Context, rule

SIGNIFICANT = 0.05


@rule(
    "DK310",
    name="uninformative-labels",
    severity=Severity.INFO,
    certainty=Certainty.STATISTICAL,
    cost="data",
    modes=("loader",),
    needs=(LabelInformation,),
)
def judge(seen: LabelInformation, context: Context) -> Iterator[Finding]:
    if seen.p_value <= SIGNIFICANT:
        return
    yield context.finding(
        f"{seen.target or 'The target'} of {seen.samples} samples is fitted no better than when it is shuffled "
        f"(error {seen.error:.3g} against {seen.shuffled_error:.3g}).",
        evidence={
            "error": seen.error,
            "shuffled_error": seen.shuffled_error,
            "p_value": seen.p_value,
            "threshold": SIGNIFICANT,
            "samples": seen.samples,
            "shuffles": seen.shuffles,
        },
        fix="Check by eye that inputs and targets of a row belong together, then the code that joins them.",
    )

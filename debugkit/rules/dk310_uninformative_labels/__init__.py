"""The targets can be predicted from the inputs no better than shuffled targets.

## What it finds
A permutation test on the first samples of the training loader. The targets are fitted from the inputs with
leave-one-out, and so are 199 shuffles of them. The rule fires if the true targets are not fitted better.

## Why it hurts
Inputs and targets that are paired wrongly (sorted separately, joined on the wrong key, shifted by an episode) still
train. The loss falls to that of the average, and then the model memorises.

## Evidence
The leave-one-out error of the true targets and of the shuffled ones, as a share of their variance, and the share of
shuffles that were fitted at least as well (`p_value`, compared with 0.05).

## Fix
Look at ten samples yourself: image, instruction and action of the same row. Then check the code that joins them.

## When it stays silent
If pooled pixels, words and states, or products of two of them, contain any information about the target: one noisy
relation in ten dimensions is enough. Information in finer details is not detected, which is why the finding is `info`.
Texts, more than 64 classes, and fewer than 128 samples are not examined.

## Cost
Up to 512 samples of the loader are read and fitted in closed form.

## Lesson
No lab of its own; [Lab 55](../../lessons/loop/55_sixteen_too_many.md) covers other causes of a high loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amounts_apart, entry_name


@measured_by(".measure:shuffle_the_labels", cost=0, requires=("dataloader",))
@dataclass(frozen=True, slots=True)
class LabelInformation:
    """A permutation test with a leave-one-out fit."""

    target: str
    samples: int
    error: float
    """Leave-one-out squared error divided by the targets' variance: guessing their mean gives 1."""
    shuffled_error: float
    """The median of the same error over the shuffles."""
    p_value: float
    """The share of shuffles that were fitted at least as well. The true targets are counted as one of them."""
    shuffles: int
    made_at: SourceLine | None = None
    """The program's function that puts a batch together."""


SIGNIFICANT = 0.05


@rule(
    "DK310",
    name="uninformative-labels",
    severity=Severity.INFO,
    certainty=Certainty.STATISTICAL,
    modes=("loader",),
    needs=(LabelInformation,),
)
def judge(seen: LabelInformation, context: Context) -> Iterator[Finding]:
    if seen.p_value <= SIGNIFICANT:
        return
    own, shuffled = amounts_apart(seen.error, seen.shuffled_error)
    yield context.finding(
        f"Over {seen.samples:,} samples, {entry_name(seen.target, 'the target')} can be predicted from the inputs no "
        f"better than shuffled targets: the error is {own}, and {shuffled} with shuffled targets.",
        input=seen.target,
        at=seen.made_at,
        evidence={
            "error": seen.error,
            "shuffled_error": seen.shuffled_error,
            "p_value": seen.p_value,
            "threshold": SIGNIFICANT,
            "samples": seen.samples,
            "shuffles": seen.shuffles,
        },
        fix="Look at some rows and check that inputs and targets belong together. Then check the code that joins them.",
    )

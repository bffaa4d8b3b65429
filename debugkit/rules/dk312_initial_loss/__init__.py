"""Before any training the loss is far above that of guessing.

## What it finds
A cross-entropy above 2 ln(C) at initialisation, where C is the number of classes that are not masked (`info` up to
8 ln(C)). A freshly
initialised classifier guesses: its loss is ln(C) for any classes in the batch.

## Why it hurts
The first hundreds of steps only undo confident wrong predictions, with gradients of the wrong size. It is often the
first sign of another fault: an embedding initialised with standard deviation 1 and tied to the head, logits scaled
twice, pixels of 0 to 255, labels of another vocabulary.

## Evidence
The mean loss and ln(C), with the threshold 2 ln(C). The finding is a `warning` above 8 ln(C), and `info` where the loss
is only high.

## Fix
Initialise the last layer (or the tied embedding) with a small standard deviation, 0.02 in most language models, and
check the scale of its input.

## When it stays silent
- Weights that were loaded or trained: `Declare(pretrained=True)`, a model loaded from a name, norm layers whose weights
  differ from each other, an optimizer with state.
- Contrastive losses over the batch, class weights, label smoothing, and fewer than 8 targets.

## Lesson
No lab of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.measurements.classification_losses import ClassificationLosses
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amount


@measured_by(".measure:look_for_training", cost=0)
@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """Signs that weights were loaded or trained."""

    sign: str | None
    """The sign, in a few words; None if there is none."""


TIMES = 2.0
FAR = 8.0
"""Below this multiple of the loss of guessing, the loss is high but falls within a few steps."""
FEWEST = 8


@rule(
    "DK312",
    name="initial-loss",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("check",),
    needs=(ClassificationLosses, TrainingHistory),
)
def judge(seen: ClassificationLosses, history: TrainingHistory, context: Context) -> Iterator[Finding]:
    if context.declare.pretrained:
        raise NotExamined("The weights are declared as loaded, so the first loss does not show the initialisation.")
    if history.sign is not None:
        raise NotExamined(f"The weights are not freshly initialised: {history.sign}.")
    fitting = [call for call in seen.calls if call.operation == "cross_entropy" and not math.isnan(call.mean)]
    if not fitting:
        raise NotExamined("The loss is not a cross_entropy with class ids.")
    for call in fitting:
        guessing = math.log(max(call.finite_classes, 2))
        if call.mean <= TIMES * guessing or call.pairs or call.weighted or call.rows < FEWEST:
            continue
        yield context.finding(
            f"The loss before training is {amount(call.mean)}, but an equal probability for each of the "
            f"{call.finite_classes:,} classes gives {amount(guessing)}.",
            at=call.at,
            evidence={
                "loss": call.mean,
                "ln_classes": guessing,
                "threshold": TIMES * guessing,
                "classes": call.finite_classes,
                "rows": call.rows,
            },
            fix="Initialise the layer that computes the logits with smaller weights. If weights were loaded, pass "
            "`declare=Declare(pretrained=True)`.",
            severity=None if call.mean > FAR * guessing else Severity.INFO,
        )

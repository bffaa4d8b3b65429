"""Before any training the loss is far above that of guessing.

## What it finds
A cross-entropy above 2 ln(C) at initialisation, where C is the number of classes that are not masked away. A freshly
initialised classifier guesses: its loss is ln(C), whatever classes the batch holds.

## Why it hurts
The first hundreds of steps go into unlearning confident nonsense, with gradients of the wrong size. It is often the
first sign of something else: an embedding initialised with standard deviation 1 and tied to the head, logits scaled
twice, pixels of 0 to 255, labels of another vocabulary.

## Evidence
The mean loss and ln(C), with the threshold 2 ln(C).

## Fix
Initialise the last layer (or the tied embedding) with a small standard deviation, 0.02 in most language models, and
look at the scale of what enters it.

## When it stays silent
Wherever weights were loaded or trained: `Declare(pretrained=True)`, a name the model was loaded from, norm layers
whose weights differ, an optimizer with state. Contrastive losses over the batch, class weights, label smoothing,
fewer than 8 targets.

## Cost
One forward pass, the observed step's.

## Lesson
No lab of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.classification_losses import ClassificationLosses
from debugkit.observations.training_history import TrainingHistory
from debugkit.registry import Context, rule

TIMES = 2.0
FEWEST = 8


@rule(
    "DK312",
    name="initial-loss",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    cost="1F",
    modes=("check",),
    needs=(ClassificationLosses, TrainingHistory),
)
def judge(seen: ClassificationLosses, history: TrainingHistory, context: Context) -> Iterator[Finding]:
    if context.declare.pretrained:
        raise NotExamined("Weights were loaded, as declared: the first loss says nothing about the initialisation.")
    if history.sign is not None:
        raise NotExamined(f"The weights are not freshly initialised: {history.sign}.")
    fitting = [call for call in seen.calls if call.operation == "cross_entropy" and not math.isnan(call.mean)]
    if not fitting:
        raise NotExamined("The loss is no cross_entropy with class ids.")
    for call in fitting:
        guessing = math.log(max(call.finite_classes, 2))
        if call.mean <= TIMES * guessing or call.pairs or call.weighted or call.rows < FEWEST:
            continue
        yield context.finding(
            f"The loss is {call.mean:.3g} before training; guessing among {call.finite_classes} classes "
            f"gives {guessing:.3g}.",
            at=call.at,
            evidence={
                "loss": call.mean,
                "ln_classes": guessing,
                "threshold": TIMES * guessing,
                "classes": call.finite_classes,
                "rows": call.rows,
            },
            fix="Initialise the layer that makes the logits smaller; Declare(pretrained=True) if weights were loaded.",
        )

"""A loss that applies softmax or sigmoid itself is given probabilities.

## What it finds
`cross_entropy` given rows that are probabilities already, `binary_cross_entropy_with_logits` given the output of a
sigmoid, `nll_loss` given probabilities where it wants their logarithms.

## Why it hurts
Squeezed twice, no class can be surer than e / (e + C - 1): with ten classes the loss cannot fall below 1.46,
gradients are small, and nothing raises. The run looks like a hard task.

## Evidence
`distributions`: every row lies in [0, 1] and sums to 1 within 1e-3; or `made_by`: the autograd graph says that a
sigmoid made the input.

## Fix
Give the loss the logits, and apply softmax or sigmoid for reading predictions only. With `nll_loss`, apply
`log_softmax`.

## When it stays silent
`cross_entropy` of log-probabilities (log-softmax applied twice is the same), probabilities as *targets*, one class,
metrics without a gradient, and a sigmoid that is scaled or shifted before the loss.

## Cost
Free: seen while a step runs; under watch() during the first three.

## Lesson
[Lab 23](../../lessons/numerics/23_log_of_softmax.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.classification_losses import ClassificationLoss, ClassificationLosses
from debugkit.registry import Context, rule


@rule(
    "DK308",
    name="double-softmax",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check", "watch"),
    needs=(ClassificationLosses,),
)
def judge(seen: ClassificationLosses, context: Context) -> Iterator[Finding]:
    for call in seen.calls:
        wrong = _wrong(call)
        if wrong is None:
            continue
        what, fix = wrong
        yield context.finding(
            f"{call.operation} is given {what}.",
            at=call.at,
            evidence={
                "distributions": call.distributions,
                "made_by": call.made_by,
                "rows": call.rows,
                "classes": call.classes,
                "mean_loss": call.mean,
            },
            fix=fix,
        )


def _wrong(call: ClassificationLoss) -> tuple[str, str] | None:
    if call.operation == "binary_cross_entropy_with_logits":
        if call.made_by in ("sigmoid", "softmax"):
            return f"what a {call.made_by} made, and applies a sigmoid once more", "Give it the values before."
        return None
    if call.classes < 2 or not call.distributions:
        return None
    if call.operation == "nll_loss":
        return "probabilities where it wants their logarithms", "Use log_softmax, or cross_entropy on the logits."
    return "probabilities, and applies softmax once more", "Give it the logits, without the softmax."

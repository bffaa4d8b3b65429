"""A loss that applies softmax or sigmoid itself receives probabilities.

## What it finds
`cross_entropy` on rows that are already probabilities, `binary_cross_entropy_with_logits` on the output of a sigmoid,
and `nll_loss` on probabilities instead of log-probabilities.

## Why it hurts
With softmax applied twice, no class can get a probability above e / (e + C - 1). With ten classes the loss cannot fall
below 1.46, the gradients are small, and nothing raises. The run looks like a hard task.

## Evidence
`distributions`: every row is in [0, 1] and sums to 1 within 1e-3. Or `made_by`: the autograd graph shows that a sigmoid
produced the input.

## Fix
Pass the logits to the loss, and apply softmax or sigmoid only to read predictions. For `nll_loss`, apply `log_softmax`.

## When it stays silent
`cross_entropy` on log-probabilities (applying log-softmax twice changes nothing), probabilities as *targets*, a single
class, metrics without a gradient, and a sigmoid whose output is scaled or shifted before the loss.

## Cost
Under `watch()`, only the first three steps are observed.

## Lesson
[Lab 23](../../lessons/numerics/23_too_sure.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.classification_losses import ClassificationLoss, ClassificationLosses
from debugkit.rule import Context, rule


@rule(
    "DK308",
    name="double-softmax",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
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
            f"`{call.operation}` receives {what}.",
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
            return (
                f"the output of a {call.made_by}, but applies a sigmoid itself",
                f"Pass the values before the {call.made_by}.",
            )
        return None
    if call.operation not in ("cross_entropy", "nll_loss") or call.classes < 2 or not call.distributions:
        return None
    if call.operation == "nll_loss":
        return "probabilities instead of log-probabilities", "Use `log_softmax`, or `cross_entropy` on the logits."
    return "probabilities, but applies a softmax itself", "Pass the logits, without a softmax."

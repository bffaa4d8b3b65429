"""A hand-written backward is not the derivative of its forward, or only under conditions that training breaks.

## What it finds
torch.autograd.Functions in the loss's graph whose backward differs from finite differences in float64; gives another
gradient when the incoming one is not contiguous (as behind a transpose) or expanded (as behind `.sum()`); writes into
the incoming buffer, which other branches still read; or keeps something outside `ctx` that a second use overwrites.

## Why it hurts
A missing term of a product rule is a direction that is nearly right: the loss falls, more slowly and less far. The
other three pass `torch.autograd.gradcheck`, which hands in contiguous gradients of its own, and break in the model.

## Evidence
The tests that failed; the entry of the Jacobian that differs most, as backward gives it and as it was measured; the
shapes it was measured on, cut from the real inputs.

## Fix
Write the derivative of every input by the product rule; treat the incoming gradient as read-only and of any stride;
keep all state in `ctx`. Then put `debugkit.gradcheck(TheFunction, …)` into a test.

## When it stays silent
Gradients that are another one on purpose: straight-through estimators and quantisers (a piecewise constant forward),
gradient reversal, scaling and clipping (an identity forward), surrogates that differ only where an element's own
derivative is zero. Inputs for which backward returns None are DK105's. Functions that take no float64 are not examined;
one that computes in float32 inside is held to gross differences only, as a `warning`.

## Cost
One forward pass; where there is a custom Function one more, and some thousand calls of it on a few numbers.

## Lesson
[Lab 18](../../lessons/gradients/18_wrong_backward.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.custom_functions import CustomFunction, CustomFunctions
from debugkit.registry import Context, rule


@rule(
    "DK108",
    name="wrong-custom-backward",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="2F",
    modes=("check",),
    needs=(CustomFunctions,),
)
def judge(seen: CustomFunctions, context: Context) -> Iterator[Finding]:
    if seen.unchecked and not seen.checked:
        name, why = seen.unchecked[0]
        raise NotExamined(f"{name} cannot be called on small float64 inputs: {why}.")
    for function in seen.checked:
        if function.failed:
            yield context.finding(
                f"The backward of {function.name} is wrong: {_failure(function)}.",
                at=function.backward,
                evidence=_evidence(function),
                fix=_fix(function),
                severity=Severity.WARNING if function.single_precision else None,
                certainty=Certainty.STATISTICAL if function.single_precision else None,
            )


def _failure(function: CustomFunction) -> str:
    first, more = function.failed[0], len(function.failed) - 1
    if (worst := function.worst) is not None:
        said = (
            f"for input {worst.input} it gives {worst.backward:.4g} "
            f"where the finite difference is {worst.finite_difference:.4g}"
        )
    else:
        said = f"{first.name}: {first.says}"
    return said + (f" (and {more} more test{'s' * (more > 1)} failed)" if more else "")


def _evidence(function: CustomFunction) -> dict[str, object]:
    called = function.called_at
    evidence: dict[str, object] = {
        "failed": [f"{test.name}: {test.says}" for test in function.failed],
        "shapes": [list(shape) for shape in function.shapes],
        "called_from": f"{called.file}:{called.line}" if called else None,
    }
    if (worst := function.worst) is not None:
        evidence |= {
            "input": worst.input,
            "input_index": list(worst.input_index),
            "output_index": list(worst.output_index),
            "backward": worst.backward,
            "finite_difference": worst.finite_difference,
        }
    return evidence


def _fix(function: CustomFunction) -> str:
    if function.worst is not None:
        return f"Derive every input's gradient of {function.name} again, by the product rule, and gradcheck it."
    name = function.failed[0].name
    if "buffer" in name:
        return "Do not write to the incoming gradient: return a new tensor."
    if "twice" in name:
        return "Keep what backward needs in ctx, not on the class or in a shared buffer."
    return "Do not assume that the incoming gradient is contiguous: use reshape, or call .contiguous() on it."

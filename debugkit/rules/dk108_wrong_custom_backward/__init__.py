"""A hand-written backward is not the derivative of its forward, or not under all conditions.

## What it finds
Custom `torch.autograd.Function`s in the loss's graph whose backward

- differs from finite differences in float64;
- returns another gradient if the incoming one is not contiguous (as behind a transpose) or is expanded (as behind
  `.sum()`);
- writes into the incoming buffer, which other branches still read;
- keeps state outside `ctx`, which a second use overwrites.

## Why it hurts
With a missing term of a product rule the gradient still points in nearly the right direction. The loss falls, but more
slowly and less far. The other three faults pass `torch.autograd.gradcheck`, which creates contiguous gradients of its
own, and break in the model.

## Evidence
The failed tests, the shapes of the small inputs that were cut from the real ones, and the Jacobian entry with the
largest difference: its value from backward and its finite difference.

## Fix
Derive the gradient of every input by the product rule. Treat the incoming gradient as read-only and of any stride. Keep
all state in `ctx`. Then put `debugkit.gradcheck(TheFunction, …)` into a test.

## When it stays silent
Gradients that differ on purpose:

- straight-through estimators and quantisers (the forward is piecewise constant);
- gradient reversal, scaling and clipping (the forward is the identity);
- surrogates that differ only where an element's own derivative is zero.

Inputs for which backward returns None belong to DK105. Functions that do not accept float64 are not examined. A
Function that computes in float32 internally is tested for large differences only, and its finding is a `warning`.

## Cost
If there is a custom Function, also some thousand calls of it with a few numbers each.

## Lesson
[Lab 18](../../lessons/gradients/18_almost_the_same.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.measurements.gradient_check import GradientTest, WorstEntry
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amounts_apart, counted


@dataclass(frozen=True)
class CustomFunction:
    """One torch.autograd.Function of the graph, checked on small inputs that are cut from its real ones."""

    name: str
    backward: SourceLine | None
    called_at: SourceLine | None
    shapes: tuple[tuple[int, ...], ...]
    """The shapes of the inputs it was checked on."""
    failed: tuple[GradientTest, ...]
    worst: WorstEntry | None
    """The Jacobian entry with the largest difference; None if none differs."""
    on_purpose: str | None
    """The reason why a different Jacobian is intended (a straight-through estimator, a gradient reversal)."""
    single_precision: bool
    """Whether the function computes in float32 for inputs of any dtype, so that only large differences show."""


@measured_by(".measure:check_custom_backwards", cost=2, requires=("batch",))
@dataclass(frozen=True)
class CustomFunctions:
    """Every custom Function in the loss's graph."""

    checked: tuple[CustomFunction, ...]
    unchecked: tuple[tuple[str, str], ...] = ()
    """(name, why)"""


@rule(
    "DK108",
    name="wrong-custom-backward",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
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
                _message(function),
                at=function.backward,
                evidence=_evidence(function),
                fix=_fix(function),
                severity=Severity.WARNING if function.single_precision else None,
                certainty=Certainty.STATISTICAL if function.single_precision else None,
            )


def _message(function: CustomFunction) -> str:
    first, more = function.failed[0], len(function.failed) - 1
    if (worst := function.worst) is not None:
        returned, expected = amounts_apart(worst.backward, worst.finite_difference)
        fault = f"is wrong: for input {worst.input} it returns {returned}, but the finite difference is {expected}"
    else:
        fault = _fault(first)
    rest = f" {counted(more, 'more test')} failed." if more else ""
    return f"`{function.name}.backward` {fault}.{rest}"


def _fault(test: GradientTest) -> str:
    if "buffer" in test.name:
        return "writes into the incoming gradient, which other branches of the graph read afterwards"
    if "twice" in test.name:
        why = f"it {test.says}" if test.says.startswith("raises") else test.says
        return f"is wrong if the function is {test.name}: {why}"
    layout = "expanded" if "expanded" in test.name else "not contiguous"
    _, raises, error = test.says.partition("raises: ")
    does, why = ("raises an error", f": {error.rstrip('.')}") if raises else ("returns a different gradient", "")
    return f"{does} if the incoming gradient is {layout}{why}"


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
        inputs = f"every input of `{function.name}`"
        return f"Derive the gradient of {inputs} by the product rule, and test it with `debugkit.gradcheck`."
    name = function.failed[0].name
    if "buffer" in name:
        return "Do not write to the incoming gradient. Return a new tensor."
    if "twice" in name:
        return "Keep everything that `backward` needs in `ctx`, not on the class or in a shared buffer."
    return "Do not assume that the incoming gradient is contiguous: use `reshape`, or call `.contiguous()` on it."

"""Weights change by far too much, or by almost nothing, relative to their size.

## What it finds
Weight matrices whose update (the ratio of root mean squares of update and weight) stays above 0.1 for five steps in a
row. Or an optimizer for which most matrices have always stayed below 1e-7.

## Why it hurts
A ratio of about 1e-3 is usual. Above 0.1 the matrix is replaced every ten steps rather than trained. Below 1e-7 float32
can hardly represent the change, and no amount of training makes up for it.

## Evidence
The `ratio` in each of the last five steps, the `range` of 1e-7 to 1e-1 it is compared with, the `learning_rate`, the
affected matrices, and how many were measured.

## Fix
Too large: lower the learning rate of this group, or check whether the initialisation is too small. Too small: raise the
learning rate, and look for a factor that is applied twice, such as a loss that is averaged twice or a schedule that is
stepped per batch.

## When it stays silent
- The first 20 steps of a parameter.
- A learning rate that is rising, is 0, or has decayed below a tenth of its maximum.
- Matrices that were 0 at the start, vectors, and matrices of fewer than 16 elements.
- Embedding tables, in which most rows get no gradient.
- Updates that became small in the course of training. Only matrices whose updates were never larger count, and only if
  most matrices of the optimizer show it. A single layer is DK109's.
- Optimizers with a line search (LBFGS).

## Cost
A sample of each weight is compared before and after each step.

## Lesson
No lab of its own; [Lab 54](../../lessons/loop/54_schedule_steps.md) has a schedule that makes the updates too small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.parameter_updates import ParameterHistory, ParameterUpdates
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import code, counted

_LOW, _HIGH = 1e-7, 1e-1
_IN_A_ROW = 5
_WARM_UP = 20
_FEWEST_ELEMENTS = 16
_DECAYED = 0.1
_NAMED = 8


@rule(
    "DK206",
    name="update-ratio",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("watch",),
    needs=(ParameterUpdates,),
    consequence_of=("DK109", "DK110", "DK201", "DK204", "DK501", "DK503", "DK509"),
)
def judge(seen: ParameterUpdates, context: Context) -> Iterator[Finding]:
    steps = max((parameter.steps for parameter in seen.parameters), default=0)
    yield from or_too_short(_wrong_sizes(seen, context), steps, _WARM_UP + _IN_A_ROW)


def _wrong_sizes(seen: ParameterUpdates, context: Context) -> Iterator[Finding]:
    matrices: dict[str, list[ParameterHistory]] = defaultdict(list)
    for parameter in seen.parameters:
        if _is_measurable(parameter):
            matrices[parameter.optimizer].append(parameter)
    several = len({parameter.optimizer for parameter in seen.parameters}) > 1
    for optimizer, measured in matrices.items():
        label = optimizer if several else optimizer.partition(" ")[0]
        high = [parameter for parameter in measured if all(update.ratio > _HIGH for update in parameter.last)]
        low = [parameter for parameter in measured if is_low(parameter)]
        if high:
            yield _finding(context, label, high, measured, "too large")
        if len(low) * 2 > len(measured):
            yield _finding(context, label, low, measured, "too small")


def _is_measurable(parameter: ParameterHistory) -> bool:
    return (
        len(parameter.shape) >= 2
        and parameter.numel >= _FEWEST_ELEMENTS
        and not parameter.zero_at_start
        and not parameter.embedding
        and not parameter.optimizer.startswith("LBFGS")
        and parameter.steps >= _WARM_UP + _IN_A_ROW
        and len(parameter.last) == _IN_A_ROW
        and all(update.learning_rate > 0.0 and not update.rising for update in parameter.last)
    )


def is_low(parameter: ParameterHistory) -> bool:
    """Whether its updates have always been too small, at a learning rate that has not decayed."""
    decayed = any(u.learning_rate < _DECAYED * parameter.largest_learning_rate for u in parameter.last)
    return parameter.largest_ratio < _LOW and not decayed


def _finding(
    context: Context, label: str, found: Sequence[ParameterHistory], measured: Sequence[ParameterHistory], how: str
) -> Finding:
    worst = (max if how == "too large" else min)(found, key=lambda parameter: parameter.last[-1].ratio)
    more = len(found) - 1
    others = f" and {counted(more, 'more weight')}" if more else ""
    update = worst.last[-1]
    return context.finding(
        f"The updates of {code(worst.path)}{others} by {label} have been {how} for {_IN_A_ROW} steps in a row: "
        f"{update.ratio:.2g} times the weight's size, at a learning rate of {update.learning_rate:.2g}.",
        parameter=worst.path,
        evidence={
            "ratio": [entry.ratio for entry in worst.last],
            "range": [_LOW, _HIGH],
            "learning_rate": update.learning_rate,
            "parameters": [parameter.path for parameter in found[:_NAMED]],
            "parameters_found": len(found),
            "parameters_measured": len(measured),
        },
        fix="Lower the learning rate of this group, or initialise the weights with larger values."
        if how == "too large"
        else "Raise the learning rate, and look for a factor that is applied twice to the loss or the gradient.",
        affects=[parameter.path for parameter in found],
    )

"""Weights change by far too much, or by almost nothing, relative to their size.

## What it finds
The update ratio of a weight matrix, which is the root mean square of its update divided by that of its weight:

- Above 0.1 for five steps in a row, for any matrix. This is `info` if fewer than half of the matrices show it and the
  loss has not risen by half: a small readout may grow so.
- Above 0.1 for most matrices from the first step on, while the loss has risen by half and has not come back to nine
  tenths of its start, or is no longer finite; or above 0.5 in the first step, while the loss has tripled.
- Always below 1e-7 for most matrices of an optimizer, below 1e-6 for Adam, and below 1e-5 for SGD at a rate of at most
  1e-5 if its gradients promise to lower the loss by less than 1e-5 of it in a step.

## Why it hurts
A ratio of about 1e-3 is usual. Above 0.1 the matrix is replaced every ten steps rather than trained. Below 1e-7 float32
can hardly represent the change, and no amount of training makes up for it.

## Evidence
The `ratio` in each of the last or the first five steps, the `range` it is compared with, the `learning_rate`, the
affected matrices, how many were measured, the losses where they were used, and the line that built the optimizer.

## Fix
Too large: lower the learning rate of this group, or check whether the initialisation is too small. Too small: raise the
learning rate, and look for a factor that is applied twice, such as a loss that is averaged twice or a schedule that is
stepped per batch.

## When it stays silent
- The first 20 steps of a parameter, or the first 8 if its updates are too small; updates that are large at first while
  the loss falls.
- Updates that are large at first, if the losses come from different numbers of calls of the model, as when a loss is
  summed over episodes of different length.
- A learning rate that is rising, is 0, or has decayed below a tenth of its maximum.
- Matrices that were 0 at the start, vectors, and matrices of fewer than 16 elements.
- Embedding tables, in which most rows get no gradient. A parameter outside the model may be one, so it is only
  reported if its updates are too small.
- Updates that became small in the course of training. Only matrices whose updates were never larger count, and only if
  most matrices of the optimizer show it. A single layer is DK109's.
- Optimizers with a line search (LBFGS).

## Cost
A sample of each weight is compared before and after each step.

## Lesson
No lab of its own; [Lab 54](../../lessons/loop/54_needs_a_larger_gpu.md) has a schedule that makes the updates too
small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.loop.losses import Losses
from debugkit.measurements.parameter_updates import ParameterHistory, ParameterUpdates
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import code, counted
from debugkit.rules.dk206_update_ratio.loss_course import LossCourse, course_of

_LOW, _HIGH = 1e-7, 1e-1
_LOW_FOR_ADAM = 1e-6
_SLOW = 1e-5
"""The share of the loss by which a step must promise to lower it: 100,000 steps to halve it are too many."""
_LOW_FOR_SGD, _LOW_RATE = 1e-5, 1e-5
_FEWEST_AT_FIRST = 2
_REPLACED = 0.5
_IN_A_ROW = 5
_WARM_UP = 20
_FEWEST_LOW = 8
"""Steps after which updates that were always too small are told: unlike large ones, they do not settle."""
_FEWEST_ELEMENTS = 16
_DECAYED = 0.1
_NAMED = 8
_RAISE = "Raise the learning rate, and look for a factor that is applied twice to the loss or the gradient."


@rule(
    "DK206",
    name="update-ratio",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("watch",),
    needs=(ParameterUpdates,),
    uses=(Losses,),
    consequence_of=("DK204", "DK501", "DK503"),
)
def judge(seen: ParameterUpdates, losses: Losses | None, context: Context) -> Iterator[Finding]:
    steps = max((parameter.steps for parameter in seen.parameters), default=0)
    yield from or_too_short(_wrong_sizes(seen, losses, context), steps, _WARM_UP + _IN_A_ROW)


def _wrong_sizes(seen: ParameterUpdates, losses: Losses | None, context: Context) -> Iterator[Finding]:
    matrices: dict[str, list[ParameterHistory]] = defaultdict(list)
    for parameter in filter(_is_matrix, seen.parameters):
        matrices[parameter.optimizer].append(parameter)
    several = len({parameter.optimizer for parameter in seen.parameters}) > 1
    for optimizer, all_of_them in matrices.items():
        label = optimizer if several else optimizer.partition(" ")[0]
        measured = [parameter for parameter in all_of_them if _is_measurable(parameter)]
        high = [parameter for parameter in measured if _is_high(parameter)]
        early = [parameter for parameter in all_of_them if _is_measurable(parameter, _FEWEST_LOW)]
        low = [parameter for parameter in early if is_low(parameter)]
        at_first = [parameter for parameter in all_of_them if _is_large_at_first(parameter)]
        course = course_of(losses)
        if high:
            harmless = len(high) * 2 < len(measured) and course is not None and not course.has_risen
            yield _finding(context, label, high, measured, "too large", Severity.INFO if harmless else None)
        elif len(at_first) * 2 > len(all_of_them) and course is not None and _does_harm(at_first, course):
            yield _large_at_first(context, label, at_first, all_of_them, course)
        if len(low) * 2 > len(early):
            yield _finding(context, label, low, early, "too small")
        elif measured and course is not None and label.startswith("SGD"):
            yield from _hopelessly_slow(context, label, measured, course)


def _is_matrix(parameter: ParameterHistory) -> bool:
    return (
        len(parameter.shape) >= 2
        and parameter.numel >= _FEWEST_ELEMENTS
        and not parameter.zero_at_start
        and not parameter.embedding
        and not parameter.optimizer.startswith("LBFGS")
    )


def _is_measurable(parameter: ParameterHistory, fewest: int = _WARM_UP + _IN_A_ROW) -> bool:
    return (
        parameter.steps >= fewest
        and len(parameter.last) == _IN_A_ROW
        and all(update.learning_rate > 0.0 and not update.rising for update in parameter.last)
    )


def _is_high(parameter: ParameterHistory) -> bool:
    """Whether its last updates are too large. A parameter outside the model may be an embedding."""
    return parameter.embedding is False and all(update.ratio > _HIGH for update in parameter.last)


def is_low(parameter: ParameterHistory) -> bool:
    """Whether its updates have always been too small, at a learning rate that has not decayed."""
    adam = parameter.optimizer.startswith("Adam")  # its first update is the learning rate, whatever the gradient is
    return parameter.largest_ratio < (_LOW_FOR_ADAM if adam else _LOW) and not _has_decayed(parameter)


def _has_decayed(parameter: ParameterHistory) -> bool:
    return any(update.learning_rate < _DECAYED * parameter.largest_learning_rate for update in parameter.last)


def _is_large_at_first(parameter: ParameterHistory) -> bool:
    return len(parameter.first) >= _FEWEST_AT_FIRST and all(update.ratio > _HIGH for update in parameter.first)


def _does_harm(at_first: Sequence[ParameterHistory], course: LossCourse) -> bool:
    return course.is_lost or (course.has_exploded and min(p.first[0].ratio for p in at_first) > _REPLACED)


def _large_at_first(
    context: Context,
    label: str,
    found: Sequence[ParameterHistory],
    measured: Sequence[ParameterHistory],
    course: LossCourse,
) -> Finding:
    worst = max(found, key=lambda parameter: parameter.first[0].ratio)
    rate = worst.first[0].learning_rate
    return context.finding(
        f"At a learning rate of {rate:.2g}, {label} changes {code(worst.path)}{_others(found)} by "
        f"{worst.first[0].ratio:.2g} times the weight's size in the first step, and {course.in_words}.",
        parameter=worst.path,
        at=worst.built_at,
        step=worst.first[0].step,
        evidence={
            "ratio": [update.ratio for update in worst.first],
            "range": [_LOW, _HIGH],
            "learning_rate": rate,
            "parameters": [parameter.path for parameter in found[:_NAMED]],
            "parameters_found": len(found),
            "parameters_measured": len(measured),
            **course.evidence,
        },
        fix="Lower the learning rate to a hundredth, and add a warm-up.",
        affects=[parameter.path for parameter in found],
    )


def _hopelessly_slow(
    context: Context, label: str, measured: Sequence[ParameterHistory], course: LossCourse
) -> Iterator[Finding]:
    """SGD moves along the gradient, so the size of the update says by how much the loss will fall."""
    small = [parameter for parameter in measured if parameter.largest_ratio < _LOW_FOR_SGD]
    if len(small) * 2 <= len(measured) or any(map(_has_decayed, small)) or not course.is_positive:
        return
    rate = max(parameter.largest_learning_rate for parameter in measured)
    if rate > _LOW_RATE:
        return
    fall = sum(p.numel * p.last[-1].change ** 2 / p.last[-1].learning_rate for p in measured) / course.now
    if fall >= _SLOW:
        return
    largest = max(parameter.largest_ratio for parameter in small)
    yield context.finding(
        f"At a learning rate of {rate:.2g}, the updates of {code(small[0].path)}{_others(small)} by {label} have been "
        f"too small: at most {largest:.2g} times the weight's size. They promise to lower the loss, {course.now:.3g}, "
        f"by {fall:.1g} of it in a step.",
        parameter=small[0].path,
        at=small[0].built_at,
        evidence={
            "ratio": [update.ratio for update in small[0].last],
            "range": [_LOW_FOR_SGD, _HIGH],
            "learning_rate": rate,
            "promised_fall": fall,
            "needed_fall": _SLOW,
            "parameters_found": len(small),
            "parameters_measured": len(measured),
        },
        fix=_RAISE,
        affects=[parameter.path for parameter in small],
    )


def _others(found: Sequence[ParameterHistory]) -> str:
    return f" and {counted(len(found) - 1, 'more weight')}" if len(found) > 1 else ""


def _finding(
    context: Context,
    label: str,
    found: Sequence[ParameterHistory],
    measured: Sequence[ParameterHistory],
    how: str,
    severity: Severity | None = None,
) -> Finding:
    worst = max(found, key=lambda parameter: parameter.last[-1].ratio) if how == "too large" else found[0]
    update = worst.last[-1]
    return context.finding(
        f"The updates of {code(worst.path)}{_others(found)} by {label} have been {how} for {_IN_A_ROW} steps in a row: "
        f"{update.ratio:.2g} times the weight's size, at a learning rate of {update.learning_rate:.2g}.",
        parameter=worst.path,
        at=worst.built_at,
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
        else _RAISE,
        severity=severity,
        affects=[parameter.path for parameter in found],
    )

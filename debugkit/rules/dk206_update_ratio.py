"""Weights move by far too much, or by next to nothing, for what they are.

## What it finds
Weight matrices whose update, as a root mean square in units of the weight's own, stays above 0.1 for five steps in a
row; or an optimizer most of whose matrices have always stayed below 1e-7.

## Why it hurts
About 1e-3 is usual. Above 0.1 a matrix is replaced rather than trained, every ten steps a new one. Below 1e-7 float32
itself can hardly show the change, and no training of any length will.

## Evidence
`ratio` of each of the last five steps, the `range` of 1e-7 to 1e-1 it was held against, the `learning_rate`, the
matrices concerned and how many were measured.

## Fix
Too large: lower the learning rate of this group, or look at the initialisation, which may be too small. Too small:
raise it, and look for a factor that is applied twice: a loss that is averaged two times, a schedule stepped per batch.

## When it stays silent
In the first 20 steps of a parameter, while the learning rate is on its way up, at 0, or has decayed below a tenth of
its highest. Matrices that were 0 at the start, vectors, matrices of fewer than 16 elements, embedding tables (of which
most rows rest). Updates that became small in the course of training: only those that never were larger count, and only
if most matrices of the optimizer show it; a single layer is DK109's. Optimizers that search along a line (LBFGS).

## Cost
A sample of each weight before and after each step.

## Lesson
No lab of its own; [Lab 54](../../lessons/loop/54_schedule_steps.md) has a schedule that starves the updates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.parameter_updates import ParameterHistory, ParameterUpdates
from debugkit.registry import Context, rule

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
    cost="nS",
    modes=("watch",),
    needs=(ParameterUpdates,),
    consequence_of=("DK109", "DK110", "DK201", "DK204", "DK501", "DK503", "DK509"),
)
def judge(seen: ParameterUpdates, context: Context) -> Iterator[Finding]:
    matrices: dict[str, list[ParameterHistory]] = defaultdict(list)
    for parameter in seen.parameters:
        if _is_measurable(parameter):
            matrices[parameter.optimizer].append(parameter)
    for label, measured in matrices.items():
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
    others = f" and {len(found) - 1} more" if len(found) > 1 else ""
    update = worst.last[-1]
    return context.finding(
        f"{worst.path}{others} of {label} moved by {update.ratio:.2g} of its own size in each of {_IN_A_ROW} steps: "
        f"updates that are {how}, at a learning rate of {update.learning_rate:.2g}.",
        parameter=worst.path,
        evidence={
            "ratio": [entry.ratio for entry in worst.last],
            "range": [_LOW, _HIGH],
            "learning_rate": update.learning_rate,
            "parameters": [parameter.path for parameter in found[:_NAMED]],
            "parameters_found": len(found),
            "parameters_measured": len(measured),
        },
        fix="Lower the learning rate of this group, or start from larger weights."
        if how == "too large"
        else "Raise the learning rate, and look for a factor that makes loss or gradient small twice.",
        affects=[parameter.path for parameter in found],
    )

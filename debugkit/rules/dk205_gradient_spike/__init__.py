"""The gradient norm jumps far above its previous values in a single step.

## What it finds
A step whose gradient norm, as the optimizer is about to use it, is more than six robust standard deviations above the
norms of the previous steps, on a logarithmic scale. From the ninth to the twentieth step, where there is no reliable
deviation yet, a norm above 30 times the largest before, if the next one is below three times the largest again.

## Why it hurts
One batch then moves the weights as far as hundreds of others did, and it stays in Adam's second moment for a thousand
steps. The loss jumps, and recovers slowly or not at all.

## Evidence
`norm`, the `median` of the previous steps, `z` and its `threshold`, 6, the number of steps it was compared with, and
the parameter with the largest share.

The robust standard deviation is 1.4826 times the median absolute deviation of the logarithms. It is at least ln(10)/6,
so that small variations of a quiet run are no spikes: a norm below ten times the median is never reported.

## Fix
First look at the batch of that step: `debugkit.trace_batches` finds it. Then use `clip_grad_norm_` with about the usual
norm, a longer warm-up, or a lower learning rate.

## When it stays silent
- The first eight steps; in the next twelve, norms that stay high or are not far above the largest.
- A norm that clipping has reduced.
- Norms that the run already had: below three times the largest of the last 64 steps (tasks that alternate) and of the
  first eight (a run that had converged).
- Steps without a gradient, or with a non-finite one (DK202).

The finding is `info` for an optimizer that moves by the sign of the gradient (Lion, SignSGD), because its steps have
the same length whatever the norm is.

## Cost
One norm for each gradient and step, read at the end of the step.

## Lesson
No lab of its own; [Lab 17](../../lessons/gradients/17_on_the_spot.md) is about clipping.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import amount, code


@dataclass(frozen=True)
class TotalNorm(PlainData):
    """The L2 norm of one optimizer's gradients in one step, and the parameter with the largest share of it."""

    step: int
    norm: float
    largest: str
    largest_norm: float


@dataclass(frozen=True)
class OptimizerNorms(PlainData):
    """One optimizer's first and last norms, oldest first. Only finite, non-zero ones."""

    optimizer: str
    first: tuple[float, ...]
    last: tuple[TotalNorm, ...]


@observed_by(".measure:GradientHistoryProbe")
@dataclass(frozen=True)
class GradientHistory(PlainData):
    """The run so far. The lengths are bounded."""

    optimizers: tuple[OptimizerNorms, ...]


_THRESHOLD = 6.0
_FEWEST = 20
_LEAST_DEVIATION = math.log(10.0) / _THRESHOLD
_ABOVE_ALL = 3.0
_FEWEST_EARLY = 8
_FAR_ABOVE = 30.0
_BY_SIGN = ("lion", "sign")
"""Parts of the names of optimizers whose step does not depend on the size of the gradient."""


@rule(
    "DK205",
    name="gradient-spike",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("watch",),
    needs=(GradientHistory,),
    consequence_of=("DK201", "DK501"),
)
def judge(seen: GradientHistory, context: Context) -> Iterator[Finding]:
    steps = max((len(run.last) for run in seen.optimizers), default=0)
    yield from or_too_short(_spikes(seen, context), steps, _FEWEST_EARLY + 2)  # the spike, and the step after it


def _spikes(seen: GradientHistory, context: Context) -> Iterator[Finding]:
    for run in seen.optimizers:
        if not run.last:
            continue
        newest, before = run.last[-1], [total.norm for total in run.last[:-1]]
        if len(run.last) > _FEWEST and _is_beyond_all(run) and (z := robust_z(newest.norm, before)) > _THRESHOLD:
            yield _finding(context, _name(run, seen), newest, before, {"z": z, "threshold": _THRESHOLD})
        elif _FEWEST_EARLY <= len(before) - 1 < _FEWEST:
            spike, earlier = run.last[-2], before[:-1]
            largest = max(earlier)
            if spike.norm > _FAR_ABOVE * largest and newest.norm < _ABOVE_ALL * largest:
                share = {"largest_before": largest, "threshold": _FAR_ABOVE * largest, "next_norm": newest.norm}
                yield _finding(context, _name(run, seen), spike, earlier, share)


def _finding(
    context: Context, name: str, spike: TotalNorm, before: Sequence[float], compared: Mapping[str, float]
) -> Finding:
    usual = median(before)
    return context.finding(
        f"The gradient norm of {name} jumped to {amount(spike.norm)}, {amount(spike.norm / usual)} "
        f"times the median of the previous {len(before)} steps. {code(spike.largest)} has the largest share.",
        parameter=spike.largest,
        step=spike.step,
        evidence={
            "norm": spike.norm,
            "median": usual,
            **compared,
            "steps_before": len(before),
            "largest": spike.largest,
            "largest_norm": spike.largest_norm,
        },
        fix="Look at the batch of this step first. Then clip the gradient norm, or lower the learning rate.",
        severity=Severity.INFO if any(part in name.lower() for part in _BY_SIGN) else None,
    )


def _name(run: OptimizerNorms, seen: GradientHistory) -> str:
    return run.optimizer if len(seen.optimizers) > 1 else run.optimizer.partition(" ")[0]


def robust_z(value: float, before: Sequence[float]) -> float:
    """How many robust standard deviations the logarithm of `value` is above those of `before`. All are positive."""
    logs = [math.log(norm) for norm in before]
    middle = median(logs)
    deviation = 1.4826 * median(abs(log - middle) for log in logs)
    return (math.log(value) - middle) / max(deviation, _LEAST_DEVIATION)


def _is_beyond_all(run: OptimizerNorms) -> bool:
    return run.last[-1].norm > _ABOVE_ALL * max(*run.first, *(total.norm for total in run.last[:-1]))

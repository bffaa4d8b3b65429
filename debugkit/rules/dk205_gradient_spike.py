"""The gradient's norm jumps far above what it has been, in a single step.

## What it finds
A step whose gradient norm, as the optimizer is about to use it, is more than six robust standard deviations above the
norms of the last steps, on the logarithmic scale.

## Why it hurts
One batch then moves the weights as far as hundreds of others did, and Adam's second moment remembers it for a thousand
steps. The loss jumps and may come back only slowly, or not at all.

## Evidence
`norm`, the `median` of the steps before, `z` and its `threshold`, 6, how many steps it was compared with, and the
parameter with the largest share.

The robust standard deviation is 1.4826 times the median absolute deviation of the logarithms, and not less than
ln(10)/6, so that a quiet run does not make every ripple a spike: a norm below ten times the median never is one.

## Fix
Look at that step's batch first: `debugkit.trace_batches` finds it. Then `clip_grad_norm_` at about the usual norm, a
longer warm-up, or a lower learning rate.

## When it stays silent
In the first 20 steps. A norm that clipping has brought back. Norms that the run already had: below three times the
largest of the last 64 (tasks that take turns) and of the first eight (a run that had converged). Steps with no
gradient, and those whose gradient is not finite (DK202).

## Cost
One norm of each gradient a step, read when the step is over.

## Lesson
No lab of its own; [Lab 17](../../lessons/gradients/17_clip_before_unscale.md) is about clipping.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.gradient_history import GradientHistory, OptimizerNorms
from debugkit.registry import Context, rule

_THRESHOLD = 6.0
_FEWEST = 20
_LEAST_DEVIATION = math.log(10.0) / _THRESHOLD
_ABOVE_ALL = 3.0


@rule(
    "DK205",
    name="gradient-spike",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    cost="nS",
    modes=("watch",),
    needs=(GradientHistory,),
    consequence_of=("DK201", "DK501"),
)
def judge(seen: GradientHistory, context: Context) -> Iterator[Finding]:
    for run in seen.optimizers:
        if len(run.last) <= _FEWEST or not _is_beyond_all(run):
            continue
        newest, before = run.last[-1], [total.norm for total in run.last[:-1]]
        z = robust_z(newest.norm, before)
        if z <= _THRESHOLD:
            continue
        usual = median(before)
        yield context.finding(
            f"The gradient norm of {run.optimizer} jumped to {newest.norm:.3g}, {newest.norm / usual:.0f} times the "
            f"median of the {len(before)} steps before; {newest.largest} has the largest share.",
            parameter=newest.largest,
            step=newest.step,
            evidence={
                "norm": newest.norm,
                "median": usual,
                "z": z,
                "threshold": _THRESHOLD,
                "steps_before": len(before),
                "largest": newest.largest,
                "largest_norm": newest.largest_norm,
            },
            fix="Look at the batch of this step; then clip the gradient's norm, or lower the learning rate.",
        )


def robust_z(value: float, before: Sequence[float]) -> float:
    """How many robust standard deviations the logarithm of `value` lies above those of `before`. All are positive."""
    logs = [math.log(norm) for norm in before]
    middle = median(logs)
    deviation = 1.4826 * median(abs(log - middle) for log in logs)
    return (math.log(value) - middle) / max(deviation, _LEAST_DEVIATION)


def _is_beyond_all(run: OptimizerNorms) -> bool:
    return run.last[-1].norm > _ABOVE_ALL * max(*run.first, *(total.norm for total in run.last[:-1]))

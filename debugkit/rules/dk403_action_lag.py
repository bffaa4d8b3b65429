"""Actions and the state changes they belong to are some steps apart.

## What it finds
In trajectories of state and action, the shift at which the state's change follows the action best, where that is not
the same step.

## Why it hurts
A recording that stamps actions late, or a window cut one frame off, teaches the policy to answer a picture it has not
seen yet. It may also be honest latency of the robot, which a policy has to live with: this is for you to know.

## Evidence
The correlation at each shift from -5 to 5, and its peak against the value at 0.

## Fix
If it is no latency of the hardware, look at how actions and observations are paired when episodes are recorded or
windows cut: a negative shift means that the state moved before the action said so.

## When it stays silent
Peaks at 0, weak ones (below 0.5), and flat ones that exceed the value at 0 by less than 0.1: slow robots look alike
at all shifts. Dimensions are paired by their number, as changes and as positions to go to, whichever fits better.

## Cost
Free: the batch is read, or the first 256 frames of a data set that says which episode they are of.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.action_lag import ActionLag
from debugkit.registry import Context, rule

CLEAR = 0.5
AHEAD = 0.1


@rule(
    "DK403",
    name="action-lag",
    severity=Severity.INFO,
    certainty=Certainty.STATISTICAL,
    cost="F",
    modes=("check", "loader"),
    needs=(ActionLag,),
)
def judge(seen: ActionLag, context: Context) -> Iterator[Finding]:
    by_lag = dict(zip(seen.lags, seen.correlation, strict=True))
    lag = max(by_lag, key=lambda each: by_lag[each])
    if lag == 0 or by_lag[lag] < CLEAR or by_lag[lag] - by_lag[0] < AHEAD:
        return
    steps = f"{abs(lag)} step{'s' * (abs(lag) != 1)}"
    yield context.finding(
        f"The state follows the action {steps} later."
        if lag > 0
        else f"The state moves {steps} before the action that belongs to it.",
        evidence={
            "lag": lag,
            "correlation": by_lag[lag],
            "correlation_at_0": by_lag[0],
            "thresholds": [CLEAR, AHEAD],
            "steps": seen.steps,
            "dimensions": seen.dimensions,
            "action_is_change": seen.relative,
            "source": seen.source,
        },
        fix="Check how actions and observations are paired when recording; keep it if the robot really lags.",
    )

"""Actions are several steps apart from the state changes that they cause.

## What it finds
Trajectories in which the change of the state correlates best with an action of another step, not of the same step.

## Why it hurts
If actions are recorded with late timestamps, or windows are cut one frame off, the policy learns to react to an image
that it has not received yet. A lag can also be real latency of the robot, which the policy has to handle. The rule
cannot tell the two apart, so it only reports the lag.

## Evidence
The largest correlation over lags from -5 to 5, the lag at which it occurs, and the correlation at lag 0.

## Fix
If the lag is not latency of the hardware, check how actions and observations are paired when episodes are recorded
and when windows are cut. A negative lag means that the state moved before the action was recorded.

## When it stays silent
The largest correlation is at lag 0, is below 0.5, or exceeds the correlation at lag 0 by less than 0.1: slow motion
correlates at every lag. Dimensions of action and state are matched by index. The action is taken as a change of the
state or as a target position, whichever correlates better.

## Cost
Reads the batch, or the first 256 frames of a data set whose frames have an episode index. `debugkit run` reads the
arguments of one call of the model: trajectories (B, T, D) of state and action.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted


@measured_by(".measure:correlate_actions", cost=0)
@dataclass(frozen=True, slots=True)
class ActionLag:
    """Correlations of the state's change in a step with the action `lag` steps earlier."""

    source: str
    """`batch`, or the role of the loader whose data set was read."""
    steps: int
    lags: tuple[int, ...]
    correlation: tuple[float, ...]
    """For each lag: the mean over the dimensions that move."""
    relative: bool
    """Whether the action was taken as a change of the state (True) or as a target position (False)."""
    dimensions: int
    path: str | None = None
    """Path of the action in the batch, if the batch was read."""
    made_at: SourceLine | None = None
    """The program's function that makes the frames, if a loader was read."""


CLEAR = 0.5
AHEAD = 0.1


@rule(
    "DK403",
    name="action-lag",
    severity=Severity.INFO,
    certainty=Certainty.STATISTICAL,
    modes=("check", "loader", "call"),
    needs=(ActionLag,),
)
def judge(seen: ActionLag, context: Context) -> Iterator[Finding]:
    by_lag = dict(zip(seen.lags, seen.correlation, strict=True))
    lag = max(by_lag, key=lambda each: by_lag[each])
    if lag == 0 or by_lag[lag] < CLEAR or by_lag[lag] - by_lag[0] < AHEAD:
        return
    steps = counted(abs(lag), "step")
    correlation = f": the correlation is {by_lag[lag]:.2f}, and {by_lag[0]:.2f} in the same step"
    yield context.finding(
        f"The state follows the action {steps} later{correlation}."
        if lag > 0
        else f"The state moves {steps} before the action that causes it{correlation}.",
        input=seen.path,
        at=seen.made_at,
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
        fix="Check how actions and observations are paired in the recording; a real latency of the robot is no fault.",
    )

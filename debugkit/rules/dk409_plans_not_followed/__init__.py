"""A controller follows its first plan and then executes something else, although all plans agree.

## What it finds
A controller that gets the same plan at every step, with the same action for every step ahead. In its first step it
executes that action. Later it settles on another one: in most cases, a multiple.

## Why it hurts
A controller stands between the policy and the robot: a queue of actions, or an ensemble that averages all plans for a
step. Each plan is correct and the first movement is too, so neither the loss nor a test of one step shows the fault.
On the robot, the arm moves too far or not far enough, most visibly near its goal, where no limit of the robot hides it.
The usual cause is a weighted sum of plans that is not divided by the sum of the weights that are in it.

## Evidence
For each dimension that differs: how many times the plan's action is executed in the last step, how far the executed
action is from the plan in the first and in the last step, and how much it still changes, all relative to the plan. The
line is the one where the function that acts begins.

## Fix
Divide the sum by the weights of the plans that are in it, or count these plans. At the beginning of an episode there is
one plan, and later there are as many as a plan has steps.

## When it stays silent
- Agreeing plans are followed, whatever the weights, or however many actions of each plan are executed.
- The first action is already another one, because the controller converts units, limits movements, or filters from
  rest. The rule does not know what it should execute then.
- What is executed never settles, as where movements are added up to positions.
- The controller stops: it executes 0 in the end, as after the gripper has closed.
- Dimensions in which the plan is 0.
- Nothing is examined unless a controller is declared: `Declare(controller=…)`, a function that gets `predict` and
  returns `act`. Both get a batch. `predict` returns plans (B, H, A), and `act` the next actions, (B, A), (B, 1, A) or
  (B, k, A), as tensors or arrays.

## Cost
The controller is called for twice the steps of a plan, and at least 64 times. The model is not called.

## Lesson
[Lab 47](../../lessons/actions/47_trembles_at_the_block.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amounts_apart, counted


@dataclass(frozen=True, slots=True)
class ExecutedDimension:
    """One dimension of the actions that a controller executes for plans that agree."""

    dimension: int
    gain: float
    """How many times the plan's action is executed in the last step."""
    first_off: float
    """The distance of what is executed in the first step to the plan, over the size of the plan."""
    last_off: float
    """The same in the last step."""
    last_size: float
    """The size of what is executed in the last step, over the size of the plan."""
    still_moves: float
    """How much it changes over the last quarter of the steps, over its size in the last one."""


@measured_by(".measure:follow_agreeing_plans", cost=0, requires=("batch",), declared="controller")
@dataclass(frozen=True, slots=True)
class ExecutedPlans:
    """What a controller executes for plans that agree."""

    path: str
    """Path of the action in the batch, of which the plans are made."""
    horizon: int
    """The steps of a plan."""
    steps: int
    """The steps that were executed."""
    dimensions: tuple[ExecutedDimension, ...]
    """Each dimension in which the plan is not 0."""
    at: SourceLine | None
    """The first line of the function that acts."""


EQUAL = 1e-3
SETTLED = 0.01
OFF = 0.05


@rule(
    "DK409",
    name="plans-not-followed",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(ExecutedPlans,),
)
def judge(seen: ExecutedPlans, context: Context) -> Iterator[Finding]:
    wrong = [each for each in seen.dimensions if is_left(each)]
    if not wrong:
        return
    worst = max(wrong, key=lambda each: round(each.last_off, 3))
    gain, one = amounts_apart(worst.gain, 1.0)
    then = f"{gain} times the plan's" if gain != one else f"one that is off by {worst.last_off:.0%} of its size"
    yield context.finding(
        f"Where all plans of {counted(seen.horizon, 'step')} agree, the controller does not follow them: "
        f"`{seen.path}[{worst.dimension}]` is the plan's in step 1, and {then} in step {seen.steps}.",
        at=seen.at,
        evidence={
            "dimensions": [each.dimension for each in wrong],
            "times_the_plan": [each.gain for each in wrong],
            "first_step_off_by": [each.first_off for each in wrong],
            "last_step_off_by": [each.last_off for each in wrong],
            "still_changes_by": [each.still_moves for each in wrong],
            "thresholds": [EQUAL, OFF, SETTLED],
            "horizon": seen.horizon,
            "steps": seen.steps,
        },
        fix="Divide a weighted sum of plans by the sum of the weights of the plans that are in it.",
    )


def is_left(executed: ExecutedDimension) -> bool:
    """Whether the plan is executed in the first step, and the controller then settles on something else."""
    follows, stops = executed.first_off <= EQUAL, executed.last_size <= EQUAL
    return follows and not stops and executed.last_off > OFF and executed.still_moves <= SETTLED

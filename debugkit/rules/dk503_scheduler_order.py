"""The learning-rate schedule is stepped at the wrong time, or does not reach the optimizer.

## What it finds
A scheduler stepped before the optimizer's first step; stepped once for each micro-batch where gradients are
accumulated; built for an optimizer that never steps, while another one trains the parameters; never stepped while its
warm-up holds the learning rate at zero; and a learning rate that is written over after each step of the schedule.

## Why it hurts
The first value is skipped; a warm-up and a decay run several times too fast, so that the rate is near zero for most of
the training; or the schedule is a curve in a logger and nothing else.

## Evidence
How often the order was seen, the threshold, the rates, and the line of `scheduler.step()` (or of `optimizer.step()`).

## Fix
One `scheduler.step()` right after the `optimizer.step()` it belongs to, and a scheduler built on the optimizer in use.

## When it stays silent
One step of the schedule an epoch, before or after validation; several in a row after one step (accelerate steps the
schedule once for each process; two schedules on one optimizer); fast-forwarding a schedule to resume; a step that a
GradScaler skipped; a schedule of the critic and of the generator, each with its own optimizer; nested schedules
(SequentialLR, ChainedScheduler); rates that are tensors.

## Cost
Under `watch()`: free.

## Lesson
[Lab 54](../../lessons/loop/54_schedule_steps.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observations.optimizer_events import LoopEvent, OptimizerEvents
from debugkit.observations.step_intervals import Interval, intervals, name_of
from debugkit.registry import Context, rule

_REPEATS = 3
_STEPS_AT_ZERO = 8
_OVERWRITES = 5  # a warm-up by hand beside a schedule by epoch has fewer


@rule(
    "DK503",
    name="scheduler-order",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("watch",),
    needs=(OptimizerEvents,),
)
def judge(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    for number in range(len(seen.labels)):
        schedule = [e for e in seen.events if e.kind == "scheduler_step" and number in e.optimizers]
        yield from _other_optimizer(seen, number, schedule, context)
        if seen.steps[number]:
            yield from _per_micro_batch(seen, number, context)
            yield from _before_the_optimizer(seen, number, schedule, context)
            yield from _never(seen, number, schedule, context)
            yield from _overwritten(seen, number, context)


def _other_optimizer(
    seen: OptimizerEvents, number: int, schedule: list[LoopEvent], context: Context
) -> Iterator[Finding]:
    """A schedule that is stepped for an optimizer which is not: the real one was built anew, or wrapped."""
    foreign = [event for event in seen.events if event.kind == "foreign_schedule" and number in event.optimizers]
    asked = any(event.kind == "scaler_step" and number in event.optimizers for event in seen.events)
    others = max(seen.steps)
    if not foreign and seen.steps[number] == 0 and others >= _REPEATS and not asked:
        foreign = schedule
    elif schedule or not seen.steps[number]:
        foreign = []
    if len(foreign) < _REPEATS or _is_followed(seen, foreign):
        return
    yield _found(
        context,
        f"The scheduler was stepped {len(foreign)} times for an optimizer that never steps: the learning rate of the "
        "one that trains does not follow it.",
        foreign[0].at,
        {"scheduler_steps": len(foreign), "optimizer_steps": others, "threshold": _REPEATS},
        "Build the scheduler on the optimizer that steps, after that optimizer was built.",
    )


def _is_followed(seen: OptimizerEvents, schedule: list[LoopEvent]) -> bool:
    """Whether an optimizer steps at the scheduled rate all the same, as one does that shares its parameter groups."""
    after = [
        (told, next((e for e in seen.events if e.kind == "step" and e.order > told.order), None)) for told in schedule
    ]
    return any(used is None or used.learning_rate == told.learning_rate for told, used in after[:-1])


def _per_micro_batch(seen: OptimizerEvents, number: int, context: Context) -> Iterator[Finding]:
    counts = [(_alternations(interval, number), interval) for interval in intervals(seen, number)]
    fast = [(count, interval) for count, interval in counts if count >= 2]
    if len(fast) < _REPEATS:
        return
    place = fast[0][1].first("scheduler_step", number) or 0
    yield _found(
        context,
        f"The scheduler of {name_of(seen, number)} was stepped once for each micro-batch: {fast[-1][0]} times between "
        "two steps of the optimizer.",
        fast[0][1].events[place].at,
        {"scheduler_steps_per_step": fast[-1][0], "steps": len(fast), "threshold": _REPEATS},
        "Step the scheduler only where the optimizer steps, and count its warm-up and its length in those steps.",
    )


def _alternations(interval: Interval, number: int) -> int:
    """How many backwards were followed by a step of the schedule before the next step; 0 if another one stepped."""
    count, fresh = 0, True  # the backward that the previous step used
    for event in interval.events:
        if event.kind in ("step", "scaler_step", "scaler_update"):
            return 0
        if event.kind == "backward":
            fresh = True
        elif event.kind == "scheduler_step" and number in event.optimizers and fresh:
            count, fresh = count + 1, False
    return count


def _before_the_optimizer(
    seen: OptimizerEvents, number: int, schedule: list[LoopEvent], context: Context
) -> Iterator[Finding]:
    early = [event for event in schedule if event.step == 0]
    complete = bool(seen.events) and seen.events[0].order == 0
    skipped = any(e.kind == "scaler_step" and early and e.order < early[0].order for e in seen.events)
    if not complete or len(early) != 1 or skipped or len(schedule) < _REPEATS or seen.steps[number] < _REPEATS:
        return
    first = next(e for e in seen.events if e.kind == "step" and number in e.optimizers)
    yield _found(
        context,
        f"The scheduler was stepped before the first step of {name_of(seen, number)}: the first learning rate of the "
        "schedule is never used.",
        early[0].at,
        {
            "scheduler_steps_before": len(early),
            "rate_of_the_first_step": first.learning_rate,
            "initial_rate": _initial(seen, number),
            "threshold": 0,
        },
        "Call scheduler.step() after optimizer.step().",
        Severity.WARNING,
    )


def _never(seen: OptimizerEvents, number: int, schedule: list[LoopEvent], context: Context) -> Iterator[Finding]:
    steps = [event for event in seen.events if event.kind == "step" and number in event.optimizers]
    initial = _initial(seen, number)
    if schedule or not initial or len(steps) < _STEPS_AT_ZERO or any(event.learning_rate != 0.0 for event in steps):
        return
    yield _found(
        context,
        f"{name_of(seen, number)} made {len(steps)} steps at a learning rate of 0, where its schedule starts: the "
        "scheduler was never stepped.",
        steps[0].at,
        {"steps": len(steps), "learning_rate": 0.0, "initial_rate": initial, "threshold": _STEPS_AT_ZERO},
        "Call scheduler.step() after each optimizer.step().",
    )


def _overwritten(seen: OptimizerEvents, number: int, context: Context) -> Iterator[Finding]:
    clashes: list[tuple[LoopEvent, LoopEvent]] = []
    kept = 0
    scheduled: LoopEvent | None = None
    for event in seen.events:
        if number not in event.optimizers:
            continue
        if event.kind == "scheduler_step":
            scheduled = event
        elif event.kind == "step" and scheduled is not None:
            if None not in (event.learning_rate, scheduled.learning_rate):
                clash = event.learning_rate != scheduled.learning_rate
                clashes += [(scheduled, event)] * clash
                kept += not clash
            scheduled = None
    if len(clashes) < _OVERWRITES or kept:
        return
    told, used = clashes[0]
    yield _found(
        context,
        f"The scheduler set the learning rate of {name_of(seen, number)} to {told.learning_rate:.3g}, and the next "
        f"step used {used.learning_rate:.3g}: something writes over it, {len(clashes)} times.",
        told.at,
        {
            "overwritten": len(clashes),
            "scheduled_rate": told.learning_rate,
            "used_rate": used.learning_rate,
            "threshold": _OVERWRITES,
        },
        "Let one thing set the learning rate: the scheduler, or the loop.",
        Severity.WARNING,
    )


def _initial(seen: OptimizerEvents, number: int) -> float | None:
    return seen.initial_rates[number] if number < len(seen.initial_rates) else None


def _found(
    context: Context,
    message: str,
    at: SourceLine | None,
    evidence: dict[str, object],
    fix: str,
    severity: Severity | None = None,
) -> Finding:
    return context.finding(message, at=at, evidence=evidence, fix=fix, severity=severity)

"""The learning-rate scheduler is stepped at the wrong time, or has no effect on the optimizer.

## What it finds
- A scheduler that is stepped before the optimizer's first step.
- A scheduler that is stepped for each micro-batch while gradients are accumulated.
- A scheduler of an optimizer that never steps, while another optimizer trains the parameters.
- A scheduler that is not stepped for eight steps, while its warm-up keeps the learning rate at zero; or one that is
  stepped eight times and keeps every learning rate at zero.
- A learning rate that is overwritten after each step of the scheduler.
- A scheduler that is stepped at least half as often as the optimizer and has lowered every rate to 1e-7, and to a
  thousandth of its largest value, long before the end: for eight steps, and a fifth of all steps. One that is stepped
  less often, such as once per epoch, and keeps every rate at exactly 0 for as many steps at the end of the run.
- A schedule that is as long as the run in steps of the optimizer, and has made at most a quarter of its steps when the
  run ends: it was stepped once per epoch.
- A `LambdaLR` whose function computes with integers only and divides with `//`, so that the rate stays the same.
- A `ReduceLROnPlateau` with `mode="max"` that is stepped with a loss, or one with `mode="min"`, the default, that is
  stepped with an accuracy, and has lowered the rate twice or more although the metric improved.
- A `CosineAnnealingLR` whose `T_max` is a number of epochs, and which is stepped for each batch, three times `T_max` or
  more. After `T_max` steps its rate rises again.
- Parameter groups that were built with different learning rates, by a factor of 2 or more, of which no step makes use:
  one rate is written into all groups before the first or the second step.

## Why it hurts
The first learning rate is skipped. Or warm-up and decay run several times too fast, and the rate is near zero for most
of the training. Or the schedule has no effect at all, although the logged curve looks correct.

## Evidence
How often it happened, the threshold, the learning rates, and the line of `scheduler.step()` (or of `optimizer.step()`).
For a `ReduceLROnPlateau`, its mode, the first and the last metric, and the mean training losses of the same epochs.

A `T_max` is a number of epochs if its name says so (`epochs`, `cfg.num_epochs`), or if an outer loop around
`scheduler.step()` is repeated as often: `range(epochs)`. For parameter groups: the smallest and the largest rate that
they were built with, and the number of steps that used one rate for all of them; 10 in a run that has ended, 1000 in
one that goes on. They are known for an optimizer that was built inside `watch()`.

A metric is taken for a loss if it falls to less than half, is within a factor of 1.5 of the training loss in every
epoch, and has a correlation of 0.95 or more with it; or if its name contains the word `loss` and it falls in two of
three epochs. It is taken for an accuracy if its name contains `acc` or `accuracy`, all its values are numbers of
samples divided by one number, and it rises in two of three epochs.

## Fix
Call `scheduler.step()` once, right after the `optimizer.step()` it belongs to. Build the scheduler on the optimizer
that the loop steps.

## When it stays silent
- One step of the scheduler per epoch, before or after validation.
- Several scheduler steps in a row after one optimizer step (accelerate steps once for each process; two schedulers on
  one optimizer), and a scheduler that is fast-forwarded to resume.
- A step that a GradScaler skipped.
- Schedulers of a critic and a generator, each with its own optimizer.
- Nested schedulers (SequentialLR, ChainedScheduler).
- A schedule that ends early or late by its length alone, as where a run is cut short.
- A `ReduceLROnPlateau` whose metric also improves in the sense of its mode; a negated loss; the rising validation loss
  of a model that overfits; an accuracy that falls; an optimizer with `maximize=True`; a run with several optimizers.
- A cosine that is stepped once per epoch, or whose `T_max` is a number of batches; `CosineAnnealingWarmRestarts`,
  `CyclicLR`, and a new `CosineAnnealingLR` for each cycle.
- Groups of which two steps or more used different rates, also as a schedule by hand computes them; groups with a rate
  of 0; groups that hold nothing trainable; a search that raises one rate to 100 times its start, or restores the rates.
- Learning rates that are tensors; a decay to 0 whose end is the end of the run; `0.1 ** (epoch // 30)`.

## Lesson
[Lab 54](../../lessons/loop/54_needs_a_larger_gpu.md)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.loop.optimizer_events import LoopEvent, OptimizerEvents
from debugkit.loop.step_intervals import Interval, intervals, name_of
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import amounts_apart
from debugkit.rules.dk503_scheduler_order.cycles import returns_to_a_high_rate
from debugkit.rules.dk503_scheduler_order.one_rate import one_rate_for_all_groups
from debugkit.rules.dk503_scheduler_order.plateaus import wrong_modes

_REPEATS = 3
_STEPS_AT_ZERO = 8
_USED_UP = 1e-7
_FALL = 1e-3  # of the largest rate
_SHARE = 0.2  # of all steps: a cosine is that low in its last fiftieth only
_PART = 0.25
_SHORTEST_RUN = 16
_OVERWRITES = 5  # a manual warm-up combined with a schedule per epoch has fewer


@rule(
    "DK503",
    name="scheduler-order",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(OptimizerEvents,),
)
def judge(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    scheduled = sum(event.kind == "scheduler_step" for event in seen.events)
    found = list(_misused(seen, context))
    if scheduled:
        list(or_too_short(found, scheduled, _REPEATS, "step of the scheduler", "steps of the scheduler"))
    yield from or_too_short(found, max(seen.steps, default=0), _STEPS_AT_ZERO)


def _misused(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    for number in range(len(seen.labels)):
        schedule = [e for e in seen.events if e.kind == "scheduler_step" and number in e.optimizers]
        yield from _other_optimizer(seen, number, schedule, context)
        if seen.steps[number]:
            yield from _per_micro_batch(seen, number, context)
            yield from _before_the_optimizer(seen, number, schedule, context)
            yield from _never(seen, number, schedule, context)
            yield from _overwritten(seen, number, context)
            yield from _used_up(seen, number, schedule, context)
            yield from _far_from_its_end(seen, number, schedule, context)
            yield from _rounded_down(seen, number, schedule, context)
            yield from returns_to_a_high_rate(seen, number, schedule, context)
            yield from one_rate_for_all_groups(seen, number, context)
    yield from wrong_modes(seen, context)


def _other_optimizer(
    seen: OptimizerEvents, number: int, schedule: list[LoopEvent], context: Context
) -> Iterator[Finding]:
    """A scheduler of an optimizer that never steps: the optimizer in use was created again later, or is a wrapper."""
    foreign = [event for event in seen.events if event.kind == "foreign_schedule" and number in event.optimizers]
    used_by_scaler = any(event.kind == "scaler_step" and number in event.optimizers for event in seen.events)
    others = max(seen.steps)
    if not foreign and seen.steps[number] == 0 and others >= _REPEATS and not used_by_scaler:
        foreign = schedule
    elif schedule or not seen.steps[number]:
        foreign = []
    if len(foreign) < _REPEATS or _is_followed(seen, foreign):
        return
    yield _found(
        context,
        f"The scheduler was stepped {len(foreign)} times, but it belongs to an optimizer that never steps. The "
        "optimizer that trains keeps its own learning rate.",
        foreign[0].at,
        {"scheduler_steps": len(foreign), "optimizer_steps": others, "threshold": _REPEATS},
        "Build the scheduler on the optimizer that the loop steps, after that optimizer was created.",
    )


def _is_followed(seen: OptimizerEvents, schedule: list[LoopEvent]) -> bool:
    """Whether an optimizer steps at the scheduled rate anyway, for example because it shares the parameter groups."""
    after = [
        (scheduled, next((e for e in seen.events if e.kind == "step" and e.order > scheduled.order), None))
        for scheduled in schedule
    ]
    return any(used is None or used.learning_rate == scheduled.learning_rate for scheduled, used in after[:-1])


def _per_micro_batch(seen: OptimizerEvents, number: int, context: Context) -> Iterator[Finding]:
    counts = [(_alternations(interval, number), interval) for interval in intervals(seen, number)]
    fast = [(count, interval) for count, interval in counts if count >= 2]
    if len(fast) < _REPEATS:
        return
    place = fast[0][1].first("scheduler_step", number) or 0
    yield _found(
        context,
        f"The scheduler of {name_of(seen, number)} was stepped for each micro-batch: "
        f"{fast[-1][0]} times between two steps of the optimizer.",
        fast[0][1].events[place].at,
        {"scheduler_steps_per_step": fast[-1][0], "steps": len(fast), "threshold": _REPEATS},
        "Step the scheduler only when the optimizer steps, and count its warm-up and total length in optimizer steps.",
    )


def _alternations(interval: Interval, number: int) -> int:
    """The number of backwards that were followed by a scheduler step; 0 if another optimizer stepped in between."""
    count, fresh = 0, True  # counts the backward that the previous step used
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
        f"The scheduler was stepped before the first step of {name_of(seen, number)}, so the first learning rate of "
        "the schedule is never used.",
        early[0].at,
        {
            "scheduler_steps_before": len(early),
            "rate_of_the_first_step": first.learning_rate,
            "initial_rate": _initial(seen, number),
            "threshold": 0,
        },
        "Call `scheduler.step()` after `optimizer.step()`.",
        Severity.WARNING,
    )


def _never(seen: OptimizerEvents, number: int, schedule: list[LoopEvent], context: Context) -> Iterator[Finding]:
    steps = [event for event in seen.events if event.kind == "step" and number in event.optimizers]
    initial = _initial(seen, number)
    if not initial or len(steps) < _STEPS_AT_ZERO or any(event.largest_rate != 0.0 for event in steps):
        return
    if schedule:
        yield from _always_zero(seen, number, schedule, context)
        return
    yield _found(
        context,
        f"{name_of(seen, number)} made {len(steps)} steps at learning rate 0, the first value of its schedule: "
        "the scheduler has not been stepped.",
        steps[0].at,
        {"steps": len(steps), "learning_rate": 0.0, "initial_rate": initial, "threshold": _STEPS_AT_ZERO},
        "Call `scheduler.step()` after each `optimizer.step()`.",
    )


def _always_zero(seen: OptimizerEvents, number: int, schedule: list[LoopEvent], context: Context) -> Iterator[Finding]:
    if len(schedule) < _STEPS_AT_ZERO or any(event.largest_rate != 0.0 for event in schedule):
        return
    yield _found(
        context,
        f"The scheduler of {name_of(seen, number)} was stepped {len(schedule)} times and kept the learning rate at 0.",
        schedule[0].at,
        {
            "scheduler_steps": len(schedule),
            "learning_rate": 0.0,
            "initial_rate": _initial(seen, number),
            "threshold": _STEPS_AT_ZERO,
        },
        "Check the function that computes the factor: an integer division, or a length that is 0, makes it 0.",
    )


def _used_up(seen: OptimizerEvents, number: int, schedule: list[LoopEvent], context: Context) -> Iterator[Finding]:
    steps = [event for event in seen.events if event.kind == "step" and number in event.optimizers]
    rates = [event.largest_rate for event in steps]
    known = [rate for rate in (*rates, _initial(seen, number)) if rate is not None]
    low = list(itertools.takewhile(lambda rate: rate is not None and rate <= _USED_UP, reversed(rates)))
    largest = max(known, default=0.0)
    enough = len(low) >= max(_STEPS_AT_ZERO, _SHARE * seen.steps[number]) and len(low) < len(steps)
    if not enough or largest * _FALL < (low[0] or 0.0) or largest <= _USED_UP or not schedule:
        return
    by_steps = len(schedule) * 2 >= len(steps)
    if not by_steps and (
        any(low) or not context.ended
    ):  # stepped once per epoch: some of these may return to a high rate
        return
    how_often = f", stepped after each step of {name_of(seen, number)}," if by_steps else f" of {name_of(seen, number)}"
    yield _found(
        context,
        f"The scheduler{how_often} has lowered the learning rate from "
        f"{largest:.2g} to {low[0]:.2g}: the last {len(low)} of {seen.steps[number]} steps used at most {_USED_UP:g}.",
        schedule[0].at,
        {
            "steps_at_the_end": len(low),
            "steps": seen.steps[number],
            "largest_rate": largest,
            "rate_now": low[0],
            "threshold": _USED_UP,
            "needed_share": _SHARE,
        },
        "Give the schedule its length in steps of the scheduler, or step it once per epoch.",
        Severity.WARNING,
    )


def _far_from_its_end(
    seen: OptimizerEvents, number: int, schedule: list[LoopEvent], context: Context
) -> Iterator[Finding]:
    steps = seen.steps[number]
    if not context.ended or not schedule or steps < _SHORTEST_RUN:
        return
    last = schedule[-1]
    if last.planned not in (steps, steps + seen.skipped) or not 2 <= last.taken <= _PART * steps:
        return
    yield _found(
        context,
        f"The schedule of {name_of(seen, number)} is {last.planned:,} steps long, as many as the optimizer made, but "
        f"the scheduler was stepped {last.taken:,} times.",
        last.at,
        {
            "planned_steps": last.planned,
            "optimizer_steps": steps,
            "scheduler_steps": last.taken,
            "largest_share": _PART,
            "rate_now": last.largest_rate,
        },
        "Step the scheduler after each `optimizer.step()`, or give it its length in epochs.",
        Severity.WARNING,
    )


def _rounded_down(seen: OptimizerEvents, number: int, schedule: list[LoopEvent], context: Context) -> Iterator[Finding]:
    rates = {event.largest_rate for event in schedule}
    if len(schedule) < _STEPS_AT_ZERO or not all(event.integer for event in schedule) or rates & {0.0, None}:
        return
    if len(rates) > 1:
        return
    yield _found(
        context,
        f"The function of the scheduler computes with integers only, so the learning rate of {name_of(seen, number)} "
        f"has stayed at {schedule[0].largest_rate:.2g} for {len(schedule)} steps of the scheduler.",
        schedule[0].at,
        {"scheduler_steps": len(schedule), "rate": schedule[0].largest_rate, "threshold": _STEPS_AT_ZERO},
        "Divide with `/` instead of `//`.",
        Severity.WARNING,
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
    planned, used = clashes[0]
    rates = amounts_apart(planned.learning_rate or 0.0, used.learning_rate or 0.0)
    yield _found(
        context,
        f"The scheduler set the learning rate of {name_of(seen, number)} to {rates[0]}, but the next step used "
        f"{rates[1]}: other code overwrote it {len(clashes)} times.",
        planned.at,
        {
            "overwritten": len(clashes),
            "scheduled_rate": planned.learning_rate,
            "used_rate": used.learning_rate,
            "threshold": _OVERWRITES,
        },
        "Set the learning rate in one place only: the scheduler, or the loop.",
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

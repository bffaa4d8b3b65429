"""Gradients are computed but no step uses them, or steps are made without new gradients.

## What it finds
- An optimizer that does not step in eight calls of `backward()`. If other optimizers step: in 20 of their steps, or if
  its gradients arrived and were reset eight times. Once the run has ended, eight calls of its `zero_grad()` are enough.
- An optimizer that steps three times without a new gradient since its previous step.
- Gradients that are reset between `backward()` and `step()`, three times.

An optimizer that does not step while others do is a `warning`: it may be meant for a later phase of the training.

## Why it hurts
The weights do not change, or drift along momentum or an old gradient, while the loop seems to run normally. No error
is raised.

## Evidence
How often each event occurred, the threshold, and the line of `backward()`, of `step()`, of the `zero_grad()` that
comes too early, or the line that built the optimizer if others step.

## Fix
Call `zero_grad()`, forward, `backward()` and `step()`, in this order, on the optimizer that holds the model's
parameters.

## When it stays silent
- Parameters change although the optimizer's own `step()` is never called (SAM and other wrappers).
- A GradScaler skips the steps.
- Gradients are written by hand, as in evolution strategies.
- A GAN whose discriminator's gradients are reset before its own backward; accumulation; closures.
- A second optimizer that steps from time to time.
- Fewer than eight calls of `backward()`.

## Lesson
[Lab 51](../../lessons/loop/51_second_phase.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.loop.optimizer_events import OptimizerEvents
from debugkit.loop.step_intervals import Interval, intervals, name_of
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import counted

_BACKWARDS = 8
_STEPS_OF_OTHERS = 20
_REPEATS = 3


@rule(
    "DK502",
    name="optimizer-never-stepped",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(OptimizerEvents,),
    consequence_of=("DK906", "DK512"),
)
def judge(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    calls = "calls of `backward()`"
    count = max(seen.backwards, *seen.steps, 0)  # gradients can be written without backward()
    yield from or_too_short(_unused(seen, context), count, _BACKWARDS, calls, calls)


def _unused(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    for number in range(len(seen.labels)):
        if seen.steps[number] == 0:
            yield from _never_stepped(seen, number, context)
        else:
            yield from _stepped_on_nothing(seen, number, context)
            yield from _reset_too_early(seen, number, context)


def _never_stepped(seen: OptimizerEvents, number: int, context: Context) -> Iterator[Finding]:
    others = sum(seen.steps)
    used_by_scaler = any(event.kind == "scaler_step" and number in event.optimizers for event in seen.events)
    was_moved = number < len(seen.moved) and seen.moved[number]
    resets = _resets(seen, number, context.ended)
    in_vain = others >= _STEPS_OF_OTHERS or resets >= _BACKWARDS if others else seen.backwards >= _BACKWARDS
    if used_by_scaler or was_moved or not in_vain:
        return
    backward = next((event for event in seen.events if event.kind == "backward"), None)
    yield context.finding(
        f"{name_of(seen, number)} never stepped in {counted(seen.backwards, 'call')} of `backward()`, and none of its "
        "parameters has changed.",
        at=_built(seen, number) if others else backward.at if backward else None,
        evidence={
            "optimizer": number,
            "backwards": seen.backwards,
            "steps": 0,
            "steps_of_others": others,
            "resets": resets,
            "threshold": _BACKWARDS if resets >= _BACKWARDS or not others else _STEPS_OF_OTHERS,
        },
        fix="Call `optimizer.step()` after `backward()`, on the optimizer that holds this model's parameters.",
        severity=Severity.WARNING if others else None,  # it may be used in a later phase of the training
        certainty=Certainty.HEURISTIC if others else None,
    )


def _built(seen: OptimizerEvents, number: int) -> SourceLine | None:
    return seen.built[number] if number < len(seen.built) else None


def _resets(seen: OptimizerEvents, number: int, ended: bool) -> int:
    """How often gradients arrived and were reset again; in a run that has ended, `zero_grad()` alone counts, too."""
    fresh = seen.fresh[number] if number < len(seen.fresh) else 0
    calls = sum(event.kind == "zero_grad" and number in event.optimizers for event in seen.events)
    return max(fresh, min(calls, seen.backwards)) if ended else fresh


def _stepped_on_nothing(seen: OptimizerEvents, number: int, context: Context) -> Iterator[Finding]:
    without_backward = {i.step.step for i in intervals(seen, number) if i.first("backward") is None}
    idle = [
        use
        for use in seen.uses
        if use.optimizer == number
        and use.step > 0
        and use.accumulations == 0
        and use.unchanged
        and use.step in without_backward
    ]
    if len(idle) < _REPEATS:
        return
    yield context.finding(
        f"{name_of(seen, number)} stepped {len(idle)} times without a `backward()` since its previous step.",
        at=idle[0].at,
        step=idle[0].step,
        evidence={
            "optimizer": number,
            "steps_without_backward": len(idle),
            "steps": seen.steps[number],
            "threshold": _REPEATS,
        },
        fix="Call `optimizer.step()` once for each `backward()`, or once for each group of micro-batches.",
    )


def _reset_too_early(seen: OptimizerEvents, number: int, context: Context) -> Iterator[Finding]:
    early = [i for i in intervals(seen, number) if _reset_after_backward(i, number)]
    unused = {use.step for use in seen.uses if use.optimizer == number and use.accumulations > 0}
    early = [interval for interval in early if interval.step.step in unused]
    if len(early) < _REPEATS:
        return
    reset = early[0].events[early[0].last("zero_grad", number) or 0]
    yield context.finding(
        f"The gradients of {name_of(seen, number)} were reset between `backward()` and `step()` {len(early)} "
        "times, so the steps had no gradient to use.",
        at=reset.at,
        step=early[0].step.step,
        evidence={
            "optimizer": number,
            "resets_before_step": len(early),
            "steps": seen.steps[number],
            "threshold": _REPEATS,
        },
        fix="Move `zero_grad()` before `backward()`, or after `step()`.",
    )


def _reset_after_backward(interval: Interval, number: int) -> bool:
    reset, backward = interval.last("zero_grad", number), interval.last("backward")
    return reset is not None and backward is not None and backward < reset

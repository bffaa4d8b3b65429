"""Gradient clipping has no effect: it runs before backward, after the step, or on scaled gradients.

## What it finds
- Three steps whose gradients were not clipped although the loop clips: the clip runs before `backward()`, after
  `step()` or before the last `backward()` of a step, or it is given no parameter (an exhausted generator).
- Three steps in which scaled gradients were clipped before `scaler.unscale_()`.
- As `info`, a clip that leaves out some of the optimizer's gradients.

## Why it hurts
The update is as large as without clipping. Scaled gradients are thousands of times too large: the clip either reduces
each of them to almost zero or, once the scale has fallen, never has an effect.

## Evidence
The number of steps with this order, the threshold, and the line of the clip.

## Fix
Call `backward()`, then `scaler.unscale_(optimizer)` if there is a scaler, then clip, then call `step()`.

## When it stays silent
- A clip with an infinite bound, which only measures the norm.
- A clip after each micro-batch, including the last one; a clip in only some of the steps.
- Several clips that together cover the optimizer; one clip for each network of a GAN.
- Scaled gradients that are clipped with a scaled bound: at least a hundredth of the loss scale.
- A disabled scaler; parameters of models that are not watched.

## Lesson
[Lab 51](../../lessons/loop/51_second_phase.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.loop.optimizer_events import LoopEvent, OptimizerEvents
from debugkit.loop.step_intervals import Interval, intervals, name_of, steps_alone
from debugkit.rule import Context, or_too_short, rule

_REPEATS = 3
_SCALED_BOUND = 0.01
"""Shares of the loss scale from here on are bounds that were multiplied by it: at 2**10, a bound of 10 is less."""


@rule(
    "DK504",
    name="clip-order",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(OptimizerEvents,),
)
def judge(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    steps = max((sum(1 for _ in intervals(seen, number)) for number in range(len(seen.labels))), default=0)
    yield from or_too_short(_misplaced(seen, context), steps, _REPEATS)


def _misplaced(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    for number in range(len(seen.labels)):
        seen_intervals = list(intervals(seen, number))
        alone = steps_alone(seen, number)
        verdicts = [(_verdict(interval, number, alone), interval) for interval in seen_intervals]
        for kind, (what, fix) in _MESSAGES.items():
            wrong = [interval for verdict, interval in verdicts if verdict == kind]
            effective = sum(verdict == "effective" for verdict, _ in verdicts)
            if len(wrong) >= _REPEATS and not effective:
                clip = _clips(wrong[0], number, alone)[-1]
                yield context.finding(
                    f"{what.format(name=name_of(seen, number))}, in {len(wrong)} of {len(verdicts)} steps.",
                    at=clip.at,
                    step=wrong[0].step.step,
                    evidence={
                        "optimizer": number,
                        "order": kind,
                        "steps": len(wrong),
                        "of": len(verdicts),
                        "threshold": _REPEATS,
                    },
                    fix=fix,
                    severity=Severity.INFO if kind == "subset" else None,
                )
                break


_MESSAGES = {
    "before_backward": (
        "The clip for {name} ran after `step()` and before the next `backward()`, when there are no new gradients",
        "Clip between `backward()` and `step()`.",
    ),
    "nothing": (
        "The clip received no parameters, so the gradients of {name} were not clipped",
        "Pass `list(model.parameters())`, or call `model.parameters()` again each time: a generator yields only once.",
    ),
    "before_last_backward": (
        "The gradients of {name} were clipped before the last `backward()` of the step, whose gradients are not "
        "clipped",
        "Clip once, after the last `backward()` and before `step()`.",
    ),
    "scaled": (
        "The gradients of {name} were clipped while they were still multiplied by the GradScaler's scale",
        "Call `scaler.unscale_(optimizer)` before the clip.",
    ),
    "subset": (
        "The clip leaves out some of the gradients that {name} uses",
        "Clip all parameters of the optimizer, unless the others need no clipping.",
    ),
}


def _verdict(interval: Interval, number: int, alone: bool) -> str | None:
    """Where the clips of one interval are in relation to backward() and step(); None if there is nothing to judge."""
    clips = _clips(interval, number, alone)
    places = [interval.events.index(clip) for clip in clips]
    first, last = interval.first("backward"), interval.last("backward")
    if not clips or first is None or last is None:
        return None
    if all(clip.passed == 0 for clip in clips):
        return "nothing" if places[-1] > last else None
    if places[-1] < first:
        return "before_backward"
    if places[-1] < last:
        return "before_last_backward" if alone else None  # the last backward may be another optimizer's
    useful = [(place, clip) for place, clip in zip(places, clips, strict=True) if place > last]
    scaler, unscale = interval.last("scaler_step", number), interval.last("scaler_unscale", number)
    if scaler is not None and (unscale is None or unscale > useful[-1][0]):
        return "effective" if all(_has_scaled_bound(clip) for _, clip in useful) else "scaled"
    covered = sum(clip.clipped for _, clip in useful if clip.optimizers and clip.optimizers[0] == number)
    clippable = max(clip.clippable for _, clip in useful)
    is_measured = all(clip.optimizers == (number,) for _, clip in useful)
    return "subset" if is_measured and 0 < covered < clippable else "effective"


def _has_scaled_bound(clip: LoopEvent) -> bool:
    return clip.limit is not None and clip.scale is not None and clip.limit >= _SCALED_BOUND * clip.scale


def _clips(interval: Interval, number: int, alone: bool) -> list[LoopEvent]:
    """The clips of this optimizer's gradients; if it is the only optimizer, also those without any parameter."""
    return [
        event
        for event in interval.events
        if event.kind == "clip"
        and (event.limit is None or math.isfinite(event.limit))
        and (number in event.optimizers or (alone and event.passed == 0))
    ]

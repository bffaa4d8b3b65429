"""Gradients are clipped in vain: before they exist, after they were used, or while they are scaled.

## What it finds
Three steps whose gradients no clip touched although the loop clips: it clips before `backward()` or after `step()`, it
is handed no parameter at all (a generator that was used up), or it clips before the last `backward()` of a step. Three
steps in which scaled gradients were clipped before `scaler.unscale_()`. And, as a note, a clip that leaves some of the
optimizer's gradients out.

## Why it hurts
The update is as large as without clipping. Scaled gradients are thousands of times too large, so that each is cut to
almost nothing, or nothing is ever cut once the scale has fallen.

## Evidence
How many steps were seen in this order, the threshold, and the line of the clip.

## Fix
`backward()`, then `scaler.unscale_(optimizer)` where there is a scaler, then the clip, then `step()`.

## When it stays silent
A clip with an infinite bound, which only measures the norm; a clip after each micro-batch, the last one included; a
clip now and then; several clips that together cover the optimizer; one clip for each network of a GAN; a disabled
scaler; parameters of models that are not watched.

## Cost
Under `watch()`: free.

## Lesson
[Lab 51](../../lessons/loop/51_stale_gradients.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.optimizer_events import LoopEvent, OptimizerEvents
from debugkit.observations.step_intervals import Interval, intervals, name_of
from debugkit.registry import Context, rule

_REPEATS = 3


@rule(
    "DK504",
    name="clip-order",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("watch",),
    needs=(OptimizerEvents,),
)
def judge(seen: OptimizerEvents, context: Context) -> Iterator[Finding]:
    for number in range(len(seen.labels)):
        seen_intervals = list(intervals(seen, number))
        alone = len(seen.labels) == 1
        verdicts = [(_verdict(interval, number, alone), interval) for interval in seen_intervals]
        for kind, (what, fix) in _SAID.items():
            wrong = [interval for verdict, interval in verdicts if verdict == kind]
            right = sum(verdict == "right" for verdict, _ in verdicts)
            if len(wrong) >= _REPEATS and not right:
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


_SAID = {
    "before_backward": (
        "The gradients of {name} were clipped after the step and before the next backward(), where there is nothing to "
        "clip",
        "Clip between backward() and step().",
    ),
    "nothing": (
        "The clip was handed no parameters, so the gradients of {name} were not clipped",
        "Pass list(model.parameters()), or model.parameters() anew each time: a generator yields them only once.",
    ),
    "before_last_backward": (
        "The gradients of {name} were clipped before the last backward() of the step, whose gradients were added whole",
        "Clip once, after the last backward() and before step().",
    ),
    "scaled": (
        "The gradients of {name} were clipped while they were still multiplied by the GradScaler's scale",
        "Call scaler.unscale_(optimizer) before the clip.",
    ),
    "subset": (
        "The clip leaves out some of the gradients that {name} steps with",
        "Clip all parameters the optimizer holds, or say to yourself why the others need none.",
    ),
}


def _verdict(interval: Interval, number: int, alone: bool) -> str | None:
    """How the clips of one interval stand to its backward and its step; None where there is none to judge."""
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
        return "scaled"
    covered = sum(clip.clipped for _, clip in useful if clip.optimizers and clip.optimizers[0] == number)
    clippable = max(clip.clippable for _, clip in useful)
    is_measured = all(clip.optimizers == (number,) for _, clip in useful)
    return "subset" if is_measured and 0 < covered < clippable else "right"


def _clips(interval: Interval, number: int, alone: bool) -> list[LoopEvent]:
    """The clips that concern an optimizer, or that concern nothing where it is the only one."""
    return [
        event
        for event in interval.events
        if event.kind == "clip"
        and (event.limit is None or math.isfinite(event.limit))
        and (number in event.optimizers or (alone and event.passed == 0))
    ]

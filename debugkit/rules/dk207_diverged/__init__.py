"""The loss diverges: it is no longer finite, or stays far above its initial value.

## What it finds
Three steps in a row whose loss is NaN or Inf, or more than 50 times the loss at the start.

## Why it hurts
Everything that is trained from there on is worthless, and the checkpoints of these steps overwrite the good ones.

## Evidence
`start`, the last losses, the ratio of the smallest of them to `start` with its `threshold`, 50, and the first step of
the three. `start` is the loss of the first step. If that is 0 except for rounding (a distillation whose student is
initialised from the teacher), it is the largest of the first eight.

## Fix
Restart from the last checkpoint before that step, with a tenth of the learning rate, warm-up, and clipping. If the loss
is NaN, DK201 or DK202 names the operation that made the first one.

## When it stays silent
A single bad batch, or one that the loop skips. Losses that can be negative or change sign (a Wasserstein critic, a
policy gradient), because their ratio has no meaning. The same holds for losses from different numbers of calls of the
model, as with a sum over episodes of different length. If a step has several losses, the smallest counts. Evaluation
losses.

## Cost
The argument of `backward()` is read with the one transfer of the step.

## Lesson
No lab of its own; [Lab 22](../../lessons/numerics/22_restart_and_it_trains.md) has a loss that turns NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.loop.losses import Loss, Losses
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import amount, counted, listed

_FACTOR = 50.0
_IN_A_ROW = 3
_ROUNDING = 1e-5


@rule(
    "DK207",
    name="diverged",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(Losses,),
    consequence_of=("DK201", "DK202", "DK205", "DK206", "DK501", "DK504", "DK509"),
)
def judge(seen: Losses, context: Context) -> Iterator[Finding]:
    steps = _smallest_of_each_step(seen.last)
    yield from or_too_short(_divergence(seen, steps, context), len(steps), _IN_A_ROW)


def _divergence(seen: Losses, steps: Sequence[tuple[int, float]], context: Context) -> Iterator[Finding]:
    bad = _first_row([(step, not math.isfinite(loss)) for step, loss in steps])
    if bad is not None:
        values = [loss for step, loss in steps if step >= bad]
        yield context.finding(
            f"The loss has not been finite since step {bad}, for {counted(len(values), 'step')} so far.",
            step=bad,
            evidence={"first_step": bad, "losses": [str(value) for value in values[:8]], "in_a_row": _IN_A_ROW},
            fix="Restart from a checkpoint before this step, and find the operation that first gave NaN or Inf.",
        )
        return
    start = _start(seen)
    if start is None:
        return
    high = _first_row([(step, loss > _FACTOR * start) for step, loss in steps])
    if high is None:
        return
    values = [loss for step, loss in steps if step >= high][:_IN_A_ROW]
    yield context.finding(
        f"The loss has been more than {_FACTOR:g} times its initial value ({amount(start)}) since step {high}: "
        f"{listed(map(amount, values))}.",
        step=high,
        severity=Severity.WARNING,
        certainty=Certainty.STATISTICAL,
        evidence={
            "start": start,
            "losses": values,
            "ratio": min(values) / start,
            "threshold": _FACTOR,
            "in_a_row": _IN_A_ROW,
        },
        fix="Lower the learning rate to a tenth, warm it up, and clip the gradient norm.",
    )


def _smallest_of_each_step(losses: Sequence[Loss]) -> list[tuple[int, float]]:
    """A step has several losses under accumulation or with several objectives. Non-finite ones count as infinite."""
    smallest: dict[int, float] = {}
    for loss in losses:
        value = loss.value if not math.isnan(loss.value) else math.inf
        smallest[loss.step] = min(value, smallest.get(loss.step, math.inf))
    return sorted(smallest.items())


def _start(seen: Losses) -> float | None:
    """The loss that later ones are compared with; None if a ratio would have no meaning."""
    first = [loss.value for loss in seen.first]
    if not first or not all(math.isfinite(value) for value in first):
        return None
    if not seen.comparable or any(loss.value < 0.0 for loss in (*seen.first, *seen.last)):
        return None
    start = max(loss.value for loss in seen.first if loss.step == seen.first[0].step)
    start = start if start > _ROUNDING else max(first)
    return start if start > _ROUNDING else None


def _first_row(steps: Sequence[tuple[int, bool]]) -> int | None:
    """The first step of the last row of bad steps, if the row is long enough and lasts to the end."""
    row: list[int] = []
    for step, bad in steps:
        row = [*row, step] if bad else []
    return row[0] if len(row) >= _IN_A_ROW else None

"""The learning rate is zero, or outside the range in which the loss falls at all.

## What it finds
All rates are 0 and no schedule will raise them; or three steps of the optimizer itself, on a copy and on one batch with
the draws of each step alike, multiply the loss by ten or make it NaN while a hundredth of the rate lowers it; or they
change it by less than float32 can hold (1e-7) while 1e6 times the rate lowers it by a hundredth.

## Why it hurts
Too high, and the first steps destroy what was loaded; too low, and weeks of training do nothing. A zero is usually a
configuration that did not arrive.

## Evidence
The rates, and the losses at the own and the other rate, against the thresholds above.

## Fix
Try a few rates, a factor of three apart, for a hundred steps each.

## When it stays silent
A loss that rises at first and less than tenfold (Adam's first steps, warm restarts, GANs); a schedule that starts at
0; some groups at 0; LBFGS; a loss that neither rate lowers.

## Cost
Nothing for a rate of 0. Three training steps and a pass for the rest; as much again on a hit.

## Lesson
[Lab 55](../../lessons/loop/55_cannot_overfit.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.short_training import LearningRates, LearningRateTrial, RateTrial
from debugkit.registry import Context, rule

_EXPLODES = 10.0
_NOTHING = 1e-7
_MUCH = 0.99


@rule(
    "DK509",
    name="learning-rate",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    cost="nS",
    modes=("check",),
    needs=(LearningRates,),
    uses=(LearningRateTrial,),
    consequence_of=("DK201", "DK202"),
)
def judge(seen: LearningRates, trial: LearningRateTrial | None, context: Context) -> Iterator[Finding]:
    rates = ", ".join(f"{rate:.3g}" for rate in dict.fromkeys(seen.rates))
    if not any(seen.rates):
        if not seen.scheduled:
            yield context.finding(
                "The learning rate of every parameter group is 0, and no schedule will raise it.",
                evidence={"rates": rates, "threshold": 0.0},
                fix="Give the optimizer a learning rate.",
                severity=Severity.ERROR,
                certainty=Certainty.PROOF,
            )
        return
    if trial is None:
        raise NotExamined(
            f"The rate ({rates}) is not zero; whether the loss falls at it was not tried: select it alone."
        )
    if trial.other is None or not math.isfinite(trial.own.losses[0]):
        return
    start, reached = trial.own.losses[0], trial.own.losses[-1]
    compared = _compared(trial.own, trial.other, rates)
    lowered = _lowers(trial.other)
    exploded = not math.isfinite(reached) or reached > _EXPLODES * abs(start)
    if trial.other.factor < 1 and exploded and lowered < 1.0:
        yield context.finding(
            f"At its learning rate ({rates}) the optimizer takes the loss from {start:.3g} to {reached:.3g} in "
            f"{len(trial.own.losses) - 1} steps; at a hundredth of it the loss falls.",
            evidence={**compared, "threshold": _EXPLODES},
            fix="Lower the learning rate, or warm it up.",
        )
    elif trial.other.factor > 1 and abs(reached - start) <= _NOTHING * abs(start) and lowered <= _MUCH:
        yield context.finding(
            f"At its learning rate ({rates}) the optimizer leaves the loss at {start:.6g}; at {trial.other.factor:g} "
            f"times the rate it falls to {trial.other.losses[-1]:.3g}.",
            evidence={**compared, "threshold": _NOTHING},
            fix="Raise the learning rate.",
        )


def _lowers(trial: RateTrial) -> float:
    """What is left of the loss at another rate; infinite where it is not finite, or was not positive."""
    first, last = trial.losses[0], trial.losses[-1]
    return last / first if first > 0 and math.isfinite(last) else math.inf


def _compared(own: RateTrial, other: RateTrial, rates: str) -> dict[str, object]:
    return {
        "rates": rates,
        "losses": own.losses,
        "other_factor": other.factor,
        "losses_at_the_other": other.losses,
    }

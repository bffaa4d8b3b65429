"""The learning rate is zero, or so high or so low that the loss does not fall.

## What it finds
- All learning rates are 0, and no scheduler will raise them.
- Three steps of the optimizer, on a copy of the model and one batch with the same random draws, multiply the loss by
  ten or make it NaN, while a hundredth of the rate lowers it.
- The three steps change the loss by less than the precision of float32 (1e-7), while 1e6 times the rate lowers it by
  a hundredth.

## Why it hurts
If the rate is too high, the first steps destroy the pretrained weights. If it is too low, weeks of training have no
effect. A rate of zero is usually a configuration value that did not reach the optimizer.

## Evidence
The learning rates, and the losses at this rate and at the other rate, against the thresholds above.

## Fix
Try several learning rates, a factor of three apart, for a hundred steps each.

## When it stays silent
- The loss rises at first, but less than tenfold (Adam's first steps, warm restarts, GANs).
- A schedule that starts at 0; only some parameter groups at 0.
- LBFGS; a loss that falls at neither rate.

## Cost
A rate of 0 is found without a pass. The three steps cost ten forward passes; if they show a problem, three steps at the
other rate are tried too.

## Lesson
[Lab 55](../../lessons/loop/55_sixteen_too_many.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.measurements.short_training import LearningRates, LearningRateTrial, RateTrial
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, amounts_apart, counted, listed, verb

_EXPLODES = 10.0
_NOTHING = 1e-7
_MUCH = 0.99


@rule(
    "DK509",
    name="learning-rate",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("check",),
    needs=(LearningRates,),
    uses=(LearningRateTrial,),
    consequence_of=("DK201", "DK202"),
)
def judge(seen: LearningRates, trial: LearningRateTrial | None, context: Context) -> Iterator[Finding]:
    rates = list(dict.fromkeys(seen.rates))
    if not any(seen.rates):
        if not seen.scheduled:
            yield context.finding(
                "The learning rate of every parameter group is 0, and no scheduler will raise it.",
                at=seen.built_at,
                evidence={"rates": rates, "threshold": 0.0},
                fix="Set a learning rate above 0 in the optimizer.",
                severity=Severity.ERROR,
                certainty=Certainty.PROOF,
            )
        return
    if trial is None:
        raise NotExamined(
            f"The {_named(rates)} {verb(len(rates), 'is', 'are')} not zero, but no training step was tried: "
            "select DK509 alone."
        )
    if trial.other is None or not math.isfinite(trial.own.losses[0]):
        return
    start, reached = trial.own.losses[0], trial.own.losses[-1]
    compared = _compared(trial.own, trial.other, rates)
    lowered = _remaining(trial.other)
    exploded = not math.isfinite(reached) or reached > _EXPLODES * abs(start)
    if trial.other.factor < 1 and exploded and lowered < 1.0:
        yield context.finding(
            f"At {_named(rates)}, the loss goes from {amount(start)} to {amount(reached)} in "
            f"{counted(len(trial.own.losses) - 1, 'step')}; at a hundredth of the rate it falls.",
            at=seen.built_at,
            evidence={**compared, "threshold": _EXPLODES},
            fix="Lower the learning rate, or add a warm-up.",
        )
    elif trial.other.factor > 1 and abs(reached - start) <= _NOTHING * abs(start) and lowered <= _MUCH:
        stays, falls = amounts_apart(start, trial.other.losses[-1])
        yield context.finding(
            f"At {_named(rates)}, the loss stays at {stays}; at {amount(trial.other.factor)} times the rate it "
            f"falls to {falls}.",
            at=seen.built_at,
            evidence={**compared, "threshold": _NOTHING},
            fix="Raise the learning rate.",
        )


def _named(rates: list[float]) -> str:
    return f"learning rate{'s' * (len(rates) > 1)} {listed(map(amount, rates))}"


def _remaining(trial: RateTrial) -> float:
    """The last loss divided by the first; infinite if the last is not finite or the first is not positive."""
    first, last = trial.losses[0], trial.losses[-1]
    return last / first if first > 0 and math.isfinite(last) else math.inf


def _compared(own: RateTrial, other: RateTrial, rates: list[float]) -> dict[str, object]:
    return {
        "rates": rates,
        "losses": own.losses,
        "other_factor": other.factor,
        "losses_at_the_other": other.losses,
    }

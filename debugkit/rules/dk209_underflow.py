"""Gradients in float16 are so small that they lose their digits or become zero.

## What it finds
Float16 gradients that have, in the median over modules, more than 30 % of their non-zero values subnormal: below
6.1e-5, where each halving costs a binary digit until nothing is left at 6e-8. Or that are all zero although the loss
is not.

Under `check()`, for parameters in float16, the step is repeated with its loss multiplied: a value that is zero or
subnormal as it is, and not when scaled, is lost for want of a scale, and of no other reason.

## Why it hurts
The loss is computed, backward runs, and the weights do not move, or move in a few coarse steps. Small learning signals
go first: those of the early layers and of the long averages that vision-language-action losses are.

## Evidence
`share` of the non-zero values with its `threshold`, 0.3; how many are `zero` and `subnormal`, over how many `steps`, or
the `scale` of the comparison; the parameter or module with the most.

## Fix
`torch.amp.GradScaler` with float32 weights under autocast; or bfloat16, which has float32's range and needs no scale.

## When it stays silent
bfloat16 and float32. A loss that is scaled enough. Zeros in a gradient that has other values (ReLU, masks). A minority
of modules, such as the logits of a large vocabulary. Steps whose loss is 0. Gradients of fewer than 32 non-zero values.
Under `watch()`, until three steps in a row show it. Under `check()`, a model with float32 weights: whether its loop
scales the loss is known to `watch()` only.

## Cost
Two counts for each float16 gradient; under `check()` two or three steps.

## Lesson
[Lab 28](../../lessons/numerics/28_fp16_underflow.md)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.half_gradients import HalfGradient, HalfGradients, HalfStep, RescaledGradients
from debugkit.registry import Context, rule

_THRESHOLD = 0.3
_IN_A_ROW = 3
_FEWEST = 32
_FIX = "Scale the loss: torch.amp.GradScaler over float32 weights under autocast; or use bfloat16, which needs none."


@rule(
    "DK209",
    name="underflow",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    cost="1S",
    modes=("check", "watch"),
    needs=(HalfGradients,),
    uses=(RescaledGradients,),
)
def judge(seen: HalfGradients, rescaled: RescaledGradients | None, context: Context) -> Iterator[Finding]:
    if rescaled is not None:
        yield from _judge_rescaled(rescaled, context)
    elif context.mode == "watch":
        yield from _judge_steps(seen, context)
    elif seen.steps and not seen.half_parameters:
        raise NotExamined("Whether the loop scales its loss is not known here: use debugkit.watch().")
    elif seen.steps:
        raise NotExamined("The loss was not tried at another scale, which takes some passes: select DK209 alone.")


def _judge_rescaled(seen: RescaledGradients, context: Context) -> Iterator[Finding]:
    usual = _usual((gradient.lost, gradient.nonzero) for gradient in seen.gradients)
    if usual <= _THRESHOLD:
        return
    zero, subnormal = (sum(getattr(g, count) for g in seen.gradients) for count in ("zero", "subnormal"))
    nonzero = sum(gradient.nonzero for gradient in seen.gradients)
    worst = max(seen.gradients, key=lambda gradient: gradient.lost)
    yield context.finding(
        f"Gradients are too small for float16: {zero} of {nonzero} values become zero and {subnormal} subnormal, which "
        f"a loss multiplied by {seen.scale:g} keeps; those of {worst.parameter} most of all.",
        parameter=worst.parameter,
        certainty=Certainty.PROOF,
        evidence={
            "share": usual,
            "threshold": _THRESHOLD,
            "nonzero": nonzero,
            "zero": zero,
            "subnormal": subnormal,
            "scale": seen.scale,
        },
        fix=_FIX,
    )


def _judge_steps(seen: HalfGradients, context: Context) -> Iterator[Finding]:
    steps = seen.steps[-_IN_A_ROW:]
    if len(steps) < _IN_A_ROW or not all(share(step) > _THRESHOLD for step in steps):
        return
    last = steps[-1]
    nonzero, subnormal = _sum(last, "nonzero"), _sum(last, "subnormal")
    worst = max(last.gradients, key=_lost)
    what = (
        "are all zero, though the loss is not"
        if nonzero == 0
        else f"are subnormal in {share(last):.0%} of a usual one's non-zero values"
    )
    yield context.finding(
        f"The float16 gradients {what}, in {_IN_A_ROW} steps in a row; those of "
        f"{worst.parameter or worst.module or 'the model'} most of all.",
        module=worst.module,
        parameter=worst.parameter,
        step=last.step,
        evidence={
            "share": [share(step) for step in steps],
            "threshold": _THRESHOLD,
            "nonzero": nonzero,
            "subnormal": subnormal,
            "numel": _sum(last, "numel"),
            "steps": len(steps),
        },
        fix=_FIX,
    )


def share(step: HalfStep) -> float:
    """The subnormal share of a usual gradient's non-zero values; 1 where all are zero and the loss is not."""
    if _sum(step, "nonzero") == 0 and _sum(step, "numel") >= _FEWEST and not step.zero_loss:
        return 1.0
    return _usual((gradient.subnormal, gradient.nonzero) for gradient in step.gradients)


def _usual(counts: Iterable[tuple[int, int]]) -> float:
    """The median share: a bias that has no gradient but rounding, or the logits of improbable words, do not decide."""
    shares = [lost / nonzero for lost, nonzero in counts if nonzero >= _FEWEST]
    return median(shares) if shares else 0.0


def _lost(gradient: HalfGradient) -> int:
    return gradient.subnormal if gradient.nonzero else gradient.numel


def _sum(step: HalfStep, count: str) -> int:
    return sum(int(getattr(gradient, count)) for gradient in step.gradients)

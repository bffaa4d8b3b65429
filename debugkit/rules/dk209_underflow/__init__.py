"""Gradients in float16 are so small that they lose digits or become zero.

## What it finds
Float16 gradients in which, in the median over modules, more than 30 % of the non-zero values are subnormal. Below
6.1e-5 each halving costs a binary digit, until nothing is left at 6e-8. Or gradients that are all zero although the
loss is not.

Under `check()`, for parameters in float16, the step is repeated with a multiplied loss. A value that is zero or
subnormal without the factor, but not with it, is lost only because the loss is not scaled.

## Why it hurts
The loss is computed, backward runs, and the weights do not change, or change in a few coarse steps. Small learning
signals are lost first: those of the early layers, and those of losses averaged over many elements, as in
vision-language-action models.

## Evidence
The `share` of the non-zero values with its `threshold`, 0.3. How many are `zero` and `subnormal`, and the number of
`steps` or the `scale` of the comparison. The parameter or module with the most lost values.

## Fix
Use `torch.amp.GradScaler` with float32 weights under autocast. Or use bfloat16, which has the range of float32 and
needs no scale.

## When it stays silent
- bfloat16 and float32, and losses with a sufficient scale.
- Zeros in a gradient that has other values (ReLU, masks).
- A minority of modules, such as the logits of a large vocabulary.
- Steps whose loss is 0, and gradients with fewer than 32 non-zero values.
- Under `watch()`, until three steps in a row show it.
- Under `check()`, a model with float32 weights: only `watch()` can see whether the loop scales the loss.

## Cost
Two counts for each float16 gradient. `check()` repeats the step with a scaled loss only if a parameter is float16.

## Lesson
[Lab 28](../../lessons/numerics/28_half_the_memory.md)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observation import measured_by, observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, code, counted, listed, module_name, sentence, verb


@dataclass(frozen=True)
class HalfGradient(PlainData):
    """The float16 gradients of one module's outputs, or of one parameter, in one step.

    `nonzero` counts the non-zero values, `subnormal` those of them below 6.1e-5, where float16 loses digits.
    """

    module: str
    parameter: str | None
    numel: int
    nonzero: int
    subnormal: int


@dataclass(frozen=True)
class HalfStep(PlainData):
    """All float16 gradients of one step, in the order of backward. `zero_loss` is whether the loss was 0."""

    step: int
    zero_loss: bool
    gradients: tuple[HalfGradient, ...]


@observed_by(".measure:HalfGradientsProbe")
@dataclass(frozen=True)
class HalfGradients(PlainData):
    """The last three steps, oldest first. `half_parameters` is the number of trainable float16 parameters."""

    half_parameters: int
    steps: tuple[HalfStep, ...]


@dataclass(frozen=True)
class RescaledGradient(PlainData):
    """How many of the `nonzero` elements of a scaled gradient are zero or subnormal without the scale."""

    parameter: str
    nonzero: int
    zero: int
    subnormal: int

    @property
    def lost(self) -> int:
        """Zero and subnormal elements together."""
        return self.zero + self.subnormal


@measured_by(".rescaled_gradients:rescale_the_loss", cost=9, requires=("batch",))
@dataclass(frozen=True)
class RescaledGradients(PlainData):
    """The same step with the plain loss and with the loss multiplied by `scale`, for float16 parameters."""

    scale: float
    gradients: tuple[RescaledGradient, ...]


_THRESHOLD = 0.3
_IN_A_ROW = 3
_FEWEST = 32
_FIX = (
    "Scale the loss: use `torch.amp.GradScaler` with float32 weights under autocast, or a larger `init_scale`. Or use "
    "bfloat16 without a scale."
)


@rule(
    "DK209",
    name="underflow",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
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
        raise NotExamined("check() cannot see whether the loop scales its loss: use debugkit.watch().")
    elif seen.steps:
        raise NotExamined("The step was not repeated with a scaled loss, which takes extra passes: select DK209.")


def _judge_rescaled(seen: RescaledGradients, context: Context) -> Iterator[Finding]:
    usual = _usual((gradient.lost, gradient.nonzero) for gradient in seen.gradients)
    if usual <= _THRESHOLD:
        return
    zero, subnormal = (sum(getattr(g, count) for g in seen.gradients) for count in ("zero", "subnormal"))
    nonzero = sum(gradient.nonzero for gradient in seen.gradients)
    counts = {"zero": zero, "subnormal": subnormal}
    lost = [f"{count:,} {verb(count, 'becomes', 'become')} {what}" for what, count in counts.items() if count]
    worst = max(seen.gradients, key=lambda gradient: gradient.lost)
    yield context.finding(
        f"Gradients are too small for float16: of {counted(nonzero, 'value')}, {listed(lost)}. Multiplying the loss "
        f"by {amount(seen.scale, 5)} prevents this. {code(worst.parameter)} loses the most.",
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
    place = code(worst.parameter) if worst.parameter else sentence(module_name(worst.module))
    what = (
        "All float16 gradients are zero, although the loss is not"
        if nonzero == 0
        else f"In the median float16 gradient, {share(last):.0%} of the non-zero values are subnormal"
    )
    yield context.finding(
        f"{what}, for {_IN_A_ROW} steps in a row. {place} loses the most.",
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
    """The subnormal share of the median gradient's non-zero values; 1 if all gradients are zero and the loss is not."""
    if _sum(step, "nonzero") == 0 and _sum(step, "numel") >= _FEWEST and not step.zero_loss:
        return 1.0
    return _usual((gradient.subnormal, gradient.nonzero) for gradient in step.gradients)


def _usual(counts: Iterable[tuple[int, int]]) -> float:
    """The median share. A bias whose gradient is only rounding, or the logits of improbable words, do not decide."""
    shares = [lost / nonzero for lost, nonzero in counts if nonzero >= _FEWEST]
    return median(shares) if shares else 0.0


def _lost(gradient: HalfGradient) -> int:
    return gradient.subnormal if gradient.nonzero else gradient.numel


def _sum(step: HalfStep, count: str) -> int:
    return sum(int(getattr(gradient, count)) for gradient in step.gradients)

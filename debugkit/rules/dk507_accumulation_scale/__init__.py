"""Accumulating micro-batches does not give the gradient of the whole batch.

## What it finds
A difference between the gradient of the whole batch and the accumulated gradient, which is the mean of the gradients
of the micro-batches, in eval mode: more than 1e-7 in float64, or ten times the rounding error of the model's own
dtype. The cause is a loss that is a sum, or a mean over something that the micro-batches contain in unequal numbers,
such as valid tokens or unpadded actions.

Under `watch()`:

- A program that divides the loss by the number of micro-batches and passes it to `Accelerator.backward()`, which
  divides by `gradient_accumulation_steps` too.
- A subclass of the Trainer of transformers whose `compute_loss` returns a mean and ignores `num_items_in_batch`, while
  the Trainer expects the loss to be scaled by it and does not divide.
- As `info`, a loop that calls `backward()` at one line two or more times for each `step()`, always equally often, on a
  loss that is a mean, and divides neither the loss nor the gradients by that number.

## Why it hurts
With a mean of means, short answers get more weight, and the weight depends on how the batch is split. With a sum, the
step size depends on the number of micro-batches. The curves for 1 and 8 micro-batches differ, and the learning rate is
suspected. If the gradients are clipped, the clip cuts a sum where its bound was meant for a mean.

## Evidence
The cosine, the ratio of the norms, the relative difference and its floor, and the parameter that differs most. Under
`watch()`, the number of calls of `backward()` per step, the steps, and whether the gradients were clipped; with
Accelerate or the Trainer, their number of micro-batches as well.

The graph of the loss shows by which numbers it was divided or multiplied: `loss * (1 / ACCUM)` is a division, too. A
division by the number of micro-batches counts only if the divisor is named after accumulation in the source, as `ACCUM`
or `gradient_accumulation_steps`.

## Fix
Sum the loss in each micro-batch, and divide by the number of valid tokens in all micro-batches. Where all micro-batches
have equal counts, divide the loss by the number of micro-batches.

## When it stays silent
- Micro-batches with equal counts; a loss divided by a number that does not depend on the split.
- `coupled_batch` is declared: a contrastive loss is not a sum over samples.

`check()` examines it only if `Declare(accumulation=4)` states that the loop accumulates, and not if the loss draws
random noise. If your trainer passes `num_items_in_batch`, use a `loss_fn` that passes it too.

Under `watch()`:

- A loss that is multiplied or divided by a number, a sum that is divided by a count, gradients that are divided, and
  `backward(gradient=…)`.
- `backward()` at several lines, as for real and generated samples, several losses of one forward pass, tasks whose
  gradients reach different parameters, gradients that are reset in between, and several optimizers.
- With Accelerate, a loss divided by a number that is equal by chance, as in half a squared error or a mean over heads.
- With the Trainer, a `compute_loss` that divides, and one with `loss_is_scaled_for_ga`.
- An optimizer such as Adam whose update does not depend on the scale of the gradients, if they are not clipped.
- A `GradScaler`.

A sum over tasks or domains that share all parameters looks the same. Then ignore the rule.

## Cost
Only where an accumulation is declared: a forward and a backward pass of the whole batch, and the same once more in
micro-batches. Under `watch()`, only the first eight steps are observed.

## Lesson
[Lab 53](../../lessons/loop/53_same_frames.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import measured_by, observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import amounts_apart


@measured_by(".measure:split_the_batch", cost=6, requires=("batch",), declared="accumulation")
@dataclass(frozen=True, slots=True)
class AccumulatedGradient:
    """The gradient of the whole batch and the accumulated gradient, compared over all trainable parameters."""

    parts: int
    cosine: float
    ratio: float
    """Norm of the accumulated gradient, divided by that of the whole batch."""
    difference: float
    """Norm of their difference, divided by that of the whole batch."""
    floor: float
    double: bool
    """Whether it was computed in float64, and not in the model's own dtype."""
    parameter: str
    """The parameter with the largest difference, by norm."""


@dataclass(frozen=True)
class FrameworkScale(PlainData):
    """A scale that a framework that accumulates gradients leaves wrong."""

    fault: Literal["divided twice", "not divided"]
    """By the program and by Accelerate; or neither by the Trainer of transformers nor by its `compute_loss`."""
    steps: int
    """The micro-batches of one step, as the framework knows them."""
    at: SourceLine
    """The call of `backward()`, or the definition of `compute_loss`."""
    weight: float = 1.0
    """The largest constant by which `compute_loss` multiplies a mean. One that depends on the batch changes."""


@dataclass(frozen=True)
class AccumulatedStep(PlainData):
    """One step of the optimizer, and the calls of `backward()` since the previous one."""

    calls: int
    means: bool
    """Whether each loss was a mean that nothing scales, of another forward pass, with a gradient for the same
    parameters, and `backward()` was always called at the same line."""
    factor: float
    """By what the gradients were multiplied between the last `backward()` and the step; NaN if not by one number, or
    if they were written more than once, as by a division and a clip."""
    at: SourceLine | None = None
    framework: FrameworkScale | None = None
    """The same for each loss of the step."""


@observed_by(".accumulated_steps:AccumulatedStepsProbe")
@dataclass(frozen=True)
class AccumulatedSteps(PlainData):
    """The first steps of a run."""

    steps: tuple[AccumulatedStep, ...]
    optimizers: int = 1
    """How many optimizers have stepped."""
    scale_free: bool = False
    """Whether the optimizer's update does not depend on the scale of the gradients."""


_SAME_DIRECTION = 1 - 1e-9
FEWEST_STEPS = 3
_EXACT = 1e-3
"""The rounding of a factor of gradients in half precision, and of its measurement."""


@rule(
    "DK507",
    name="accumulation-scale",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(),
    uses=(AccumulatedGradient, AccumulatedSteps),
)
def judge(gradient: AccumulatedGradient | None, steps: AccumulatedSteps | None, context: Context) -> Iterator[Finding]:
    if context.mode == "watch":
        if steps is None:
            raise NotExamined(context.missing.get(AccumulatedSteps, "The calls of `backward()` were not observed."))
        yield from or_too_short(_undivided(steps, context), len(steps.steps), FEWEST_STEPS)
    elif gradient is None:
        raise NotExamined(context.missing.get(AccumulatedGradient, "The accumulated gradient was not computed."))
    else:
        yield from _differs(gradient, context)


def _undivided(seen: AccumulatedSteps, context: Context) -> Iterator[Finding]:
    if len(seen.steps) < FEWEST_STEPS:
        return
    if seen.optimizers > 1:
        raise NotExamined("Several optimizers step: each may use some of the losses.")
    calls = seen.steps[0].calls
    factors = [step.factor for step in seen.steps]
    if calls < 2 or any(step.calls != calls for step in seen.steps):
        return
    untouched = [abs(factor - 1) <= _EXACT for factor in factors]
    clipped = not all(untouched) and all(factor <= 1 + _EXACT for factor in factors)
    if not (clipped or all(untouched)) or _is_one_number(factors, untouched):
        return
    scale = seen.steps[0].framework
    if scale is not None and scale.steps == calls and all(step.framework == scale for step in seen.steps):
        yield from _by_framework(scale, seen, clipped, context)
        return
    if (seen.scale_free and not clipped) or not all(step.means for step in seen.steps):
        return
    yield context.finding(
        f"Each step adds the gradients of {calls} losses, each a mean, and nothing divides them by {calls}: "
        f"{'the clipped gradient' if clipped else 'the gradient'} is {calls} times that of the whole batch.",
        at=seen.steps[0].at,
        evidence={
            "backward_calls_a_step": calls,
            "steps": len(seen.steps),
            "needed_steps": FEWEST_STEPS,
            "factors": factors,
            "clipped": clipped,
        },
        fix=f"Divide the loss by {calls} before `backward()`. If the losses are of different tasks whose sum is meant, "
        "ignore this.",
        severity=Severity.INFO,
        certainty=Certainty.HEURISTIC,
    )


def _by_framework(scale: FrameworkScale, seen: AccumulatedSteps, clipped: bool, context: Context) -> Iterator[Finding]:
    twice, number = scale.fault == "divided twice", scale.steps
    if twice and seen.scale_free and not clipped:
        return
    gradient = "The clipped gradient" if clipped else "The gradient"
    yield context.finding(
        f"The loss of each micro-batch is divided by {number}, and `Accelerator.backward()` divides it by {number} "
        f"again. {gradient} is 1/{number} of that of the whole batch."
        if twice
        else f"`compute_loss` returns the mean over a micro-batch, and the Trainer adds the gradients of {number} of "
        f"them and does not divide. {gradient} and the reported training loss are {number} times as large.",
        at=scale.at,
        evidence={
            "backward_calls_a_step": seen.steps[0].calls,
            "gradient_accumulation_steps": number,
            "steps": len(seen.steps),
            "needed_steps": FEWEST_STEPS,
            "factors": [step.factor for step in seen.steps],
            "clipped": clipped,
        },
        fix="Pass the loss to `accelerator.backward()` without dividing it."
        if twice
        else "Add up the losses in `compute_loss` and divide by `num_items_in_batch`; or divide the mean by "
        "`self.current_gradient_accumulation_steps`.",
        severity=Severity.WARNING,
    )


def _is_one_number(factors: Sequence[float], untouched: Sequence[bool]) -> bool:
    """Whether all gradients were multiplied by one number, as by a division; a clip depends on their norm."""
    return not any(untouched) and max(factors) - min(factors) <= _EXACT * max(factors)


def _differs(seen: AccumulatedGradient, context: Context) -> Iterator[Finding]:
    if context.declare.coupled_batch:
        raise NotExamined(
            "The samples of a batch are declared to influence each other, so micro-batches cannot add up to the batch."
        )
    if seen.difference <= seen.floor:
        return
    only_scale = seen.cosine >= _SAME_DIRECTION
    ratio, cosine = amounts_apart(seen.ratio, 1.0)[0], amounts_apart(seen.cosine, 1.0)[0]
    what = (
        f"has {ratio} times the norm of the whole batch's gradient: the loss is not a mean over the samples"
        if only_scale
        else f"differs from the whole batch's gradient (the cosine is {cosine}, and the norm is {ratio} times as "
        "large): "
        "the losses of the micro-batches are means over unequal counts"
    )
    yield context.finding(
        f"The gradient accumulated over {seen.parts} micro-batches {what}.",
        parameter=seen.parameter,
        evidence={
            "parts": seen.parts,
            "cosine": seen.cosine,
            "ratio": seen.ratio,
            "difference": seen.difference,
            "threshold": seen.floor,
            "float64": seen.double,
        },
        fix="Sum the loss of each micro-batch, and divide by the number of valid targets in all micro-batches.",
    )

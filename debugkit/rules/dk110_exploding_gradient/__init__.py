"""Signals or gradients grow by a factor with every layer of a stack, so that one batch can derail training.

## What it finds
Stacks of four or more similar layers in which the output of the last layer is more than 1e4 times that of the first, or
the gradient of the first weight matrix more than 1e4 times that of the last. The growth must be steady, layer by layer.

## Why it hurts
A small change of a weight becomes a large change of the loss: the first steps jump, clipping reduces every gradient to
almost nothing, and half precision overflows. Without norms, activations and gradients both grow, and the two effects
multiply: all weights then get the same gradient, which is far too large, and a table of gradient norms looks even.

## Evidence
The root mean square of each layer's output or gradient, the ratio between the ends, and the slope in decades per layer.
All three passes must show it.

## Fix
Use an initialisation that preserves the variance (a gain of 1 for linear layers, √2 with ReLU), put a norm before each
block, or scale residual branches by 1/√depth.

## When it stays silent
Gradients that are large everywhere: only the change with depth counts, and a sum of residuals grows slowly. A single
odd layer among equal ones, parallel experts, and layers that run more than once in a pass.

## Cost
Shares the passes of DK107.

## Lesson
No lab of its own; [Lab 16](../../lessons/gradients/16_one_answer.md) is its opposite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.gradient_flow import GradientFlow, Stack
from debugkit.measurements.gradient_flow.depth import decades_per_layer
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, module_name

RATIO = 1e4
PASSES = 3


@rule(
    "DK110",
    name="exploding-gradient",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("check",),
    needs=(GradientFlow,),
)
def judge(seen: GradientFlow, context: Context) -> Iterator[Finding]:
    if seen.passes < PASSES:
        return
    worst: dict[str, Stack] = {}
    for stack in seen.stacks:
        tower = stack.pattern.partition("*")[0]
        if _growth(stack) > RATIO and (tower not in worst or _growth(stack) > _growth(worst[tower])):
            worst[tower] = stack
    for stack in worst.values():
        forward, backward = _forward_growth(stack), _backward_growth(stack)
        what = "output" if forward >= backward else "gradient"
        sizes = stack.outputs[-1] if forward >= backward else stack.gradients[-1]
        yield context.finding(
            f"The {what} grows by a factor of {amount(_growth(stack), 1)} over {len(stack.modules)} layers, "
            f"{module_name(stack.modules[0])} to {module_name(stack.modules[-1])}.",
            module=stack.modules[-1] if what == "output" else stack.modules[0],
            evidence={
                "modules": list(stack.modules),
                f"{what}_rms": list(sizes),
                "growth": _growth(stack),
                "threshold": RATIO,
                "decades_per_layer": decades_per_layer(sizes),
                "passes": seen.passes,
            },
            fix="Use an initialisation that preserves the variance, or put a norm before each layer.",
        )


def _growth(stack: Stack) -> float:
    return max(_forward_growth(stack), _backward_growth(stack))


def _forward_growth(stack: Stack) -> float:
    return _over_depth(stack.outputs)


def _backward_growth(stack: Stack) -> float:
    return _over_depth([sizes[::-1] for sizes in stack.gradients])


def _over_depth(passes: Sequence[Sequence[float]]) -> float:
    """Last over first, the mildest of the passes. 0 unless the values grow with depth in every pass."""
    slopes = [decades_per_layer(sizes) for sizes in passes]
    if any(slope is None or slope <= 0 for slope in slopes):
        return 0.0
    return min(sizes[-1] / sizes[0] for sizes in passes)

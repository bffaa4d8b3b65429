"""The gradient shrinks by a factor with every layer, so that the first layers of a stack hardly learn.

## What it finds
Stacks of four or more like layers in which the gradient of the first weight matrix is less than 1e-4 of the last one's
and falls along the depth, layer by layer.

## Why it hurts
The last layers learn on the random features of the first. A sigmoid passes a quarter of a gradient at most: eight of
them pass 1e-5. Adam's normalisation hides the difference until its epsilon is reached.

## Evidence
The root mean square of each layer's gradient, the ratio of first to last, and the slope in decades per layer, the
same in each of three passes.

## Fix
A residual connection round each block, a norm before it, another activation (GELU, SiLU), or an initialisation that
keeps the variance.

## When it stays silent
Gradients that are small everywhere: only the change along the depth counts. Biases and norms (a key's bias is
legitimately at 1e-8), one odd layer among equal ones, parallel experts and heads, layers that run more than once in a
pass, and gates near zero, which move all layers behind them alike.

## Cost
Shares the passes of DK107.

## Lesson
[Lab 16](../../lessons/gradients/16_vanishing_head.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.depth import decades_per_layer
from debugkit.observations.gradient_flow import GradientFlow, Stack
from debugkit.registry import Context, rule

RATIO = 1e-4
PASSES = 3


@rule(
    "DK109",
    name="vanishing-gradient",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    cost="nS",
    modes=("check",),
    needs=(GradientFlow,),
    consequence_of=("DK111",),
)
def judge(seen: GradientFlow, context: Context) -> Iterator[Finding]:
    if seen.passes < PASSES:
        return
    worst: dict[str, Stack] = {}
    for stack in seen.stacks:
        tower = stack.pattern.partition("*")[0]
        if _ratio(stack) < RATIO and (tower not in worst or _ratio(stack) < _ratio(worst[tower])):
            worst[tower] = stack
    for stack in worst.values():
        last = stack.gradients[-1]
        yield context.finding(
            f"The gradient of {stack.modules[0]} is {_ratio(stack):.1g} of that of {stack.modules[-1]}: "
            f"it shrinks over {len(stack.modules)} layers.",
            module=stack.modules[0],
            evidence={
                "modules": list(stack.modules),
                "gradient_rms": list(last),
                "first_over_last": _ratio(stack),
                "threshold": RATIO,
                "decades_per_layer": decades_per_layer(last),
                "passes": seen.passes,
            },
            fix="Put a residual connection and a norm around each layer; or initialise so that signals keep size.",
        )


def _ratio(stack: Stack) -> float:
    """First over last, the mildest of the passes; infinite unless the gradient falls along the depth in each."""
    slopes = [decades_per_layer(sizes) for sizes in stack.gradients]
    if any(slope is None or slope <= 0 for slope in slopes):
        return float("inf")
    return max(sizes[0] / sizes[-1] for sizes in stack.gradients)

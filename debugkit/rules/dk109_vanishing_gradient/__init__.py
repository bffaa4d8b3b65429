"""The gradient shrinks by a factor with every layer, so that the first layers of a stack hardly learn.

## What it finds
Stacks of four or more similar layers in which the gradient falls with depth, layer by layer, and the gradient of the
first weight matrix is less than 1e-4 of the last one's.

## Why it hurts
The last layers learn from the random features of the first ones. A sigmoid passes at most a quarter of a gradient, so
eight of them pass about 1e-5. Adam's normalisation hides the difference until its epsilon is reached.

## Evidence
The root mean square of each layer's gradient, the ratio of first to last, and the slope in decades per layer. All three
passes must show it.

## Fix
Put a residual connection around each block and a norm before it, use another activation (GELU, SiLU), or use an
initialisation that preserves the variance.

## When it stays silent
Gradients that are small everywhere: only the change with depth counts. Biases and norms (a key's bias is legitimately
at 1e-8), a single odd layer among equal ones, parallel experts and heads, layers that run more than once in a pass, and
gates near zero, which affect all layers behind them equally.

## Cost
Shares the passes of DK107.

## Lesson
[Lab 16](../../lessons/gradients/16_one_answer.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.gradient_flow import GradientFlow, Stack
from debugkit.measurements.gradient_flow.depth import decades_per_layer
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, module_name

RATIO = 1e-4
PASSES = 3


@rule(
    "DK109",
    name="vanishing-gradient",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
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
            f"The gradient of {module_name(stack.modules[0])} is {amount(_ratio(stack), 1)} times that of "
            f"{module_name(stack.modules[-1])}: it shrinks over {len(stack.modules)} layers.",
            module=stack.modules[0],
            evidence={
                "modules": list(stack.modules),
                "gradient_rms": list(last),
                "first_over_last": _ratio(stack),
                "threshold": RATIO,
                "decades_per_layer": decades_per_layer(last),
                "passes": seen.passes,
            },
            fix="Add a residual connection and a norm to each layer, or an initialisation that preserves the variance.",
        )


def _ratio(stack: Stack) -> float:
    """First over last, the mildest of the passes. Infinite unless the gradient falls with depth in every pass."""
    slopes = [decades_per_layer(sizes) for sizes in stack.gradients]
    if any(slope is None or slope <= 0 for slope in slopes):
        return float("inf")
    return max(sizes[0] / sizes[-1] for sizes in stack.gradients)

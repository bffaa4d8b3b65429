"""Nearly all units of a ReLU layer are zero for every sample: they pass no gradient and cannot recover.

## What it finds
ReLUs (modules or function calls) of which more than 90 % of the units are at or below zero for every sample of several
batches, and still are after a step.

## Why it hurts
Where a ReLU is zero, its gradient is zero too, so nothing makes the unit active again. A single step with too large a
learning rate, a bias far below zero, or inputs that are not normalised can kill a whole layer at once. The layers
behind it receive a constant, and the loss stops at a plateau.

## Evidence
The number of units, how many are dead and over how many samples, and how many are still dead after a step.

## Fix
Lower the learning rate or warm it up, normalise the inputs, and start biases at zero. LeakyReLU, GELU and SiLU cannot
die.

## When it stays silent
Layers with some dead units, sparse activations (each unit is active for some sample), fewer than eight units or sixteen
samples, layers that a zero-initialised gate keeps at zero, and square matrices of similarities in a hinge loss.

## Cost
Shares the passes of DK107.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.gradient_flow import GradientFlow
from debugkit.rule import Context, rule
from debugkit.rule_text import module_name

SHARE = 0.9
UNITS, SAMPLES, PASSES = 8, 16, 3


@rule(
    "DK111",
    name="dead-units",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("check",),
    needs=(GradientFlow,),
    consequence_of=("DK110", "DK301"),
)
def judge(seen: GradientFlow, context: Context) -> Iterator[Finding]:
    if seen.passes < PASSES:
        return
    for layer in seen.relus:
        if layer.units < UNITS or layer.samples < SAMPLES or layer.after_a_step <= SHARE * layer.units:
            continue
        yield context.finding(
            f"{layer.after_a_step:,} of {layer.units:,} ReLU units of {module_name(layer.module)} are zero for all "
            f"{layer.samples:,} samples.",
            module=layer.module,
            evidence={
                "units": layer.units,
                "dead": layer.dead,
                "dead_after_a_step": layer.after_a_step,
                "samples": layer.samples,
                "passes": seen.passes,
                "threshold": SHARE,
            },
            fix="Lower the learning rate, normalise the input, or use an activation that cannot die (GELU, LeakyReLU).",
        )

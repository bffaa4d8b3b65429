"""The same step from the same seed gives another result.

## What it finds
Two forward and backward passes, from the same weights, seeds and batch, whose module outputs, loss or gradients differ
in a bit. Named is the first operation that came out different, its module and line, and why: a draw that no seed
reaches, a kernel that does not repeat itself for equal inputs, or a value from outside torch.

## Why it hurts
A run cannot be repeated, a resumed run not be compared, a bug not be bisected. A draw that no seed reaches also draws
otherwise on each rank.

## Evidence
How many outputs and gradients were compared and how many differ, against a threshold of 0; the operation.

## Fix
Draw from a seeded generator; `torch.use_deterministic_algorithms(True)` for a kernel; no clock in the forward pass.

## When it stays silent
Dropout, noise and time drawn from the global generators; generators that modules, closures or globals hold and that
draw on from one seed; state that a model carries along, which is put back between the passes; checkpointing. A value
from outside torch is a warning, since a counter, such as that of an annealed loss, changes from pass to pass too.

## Cost
Two training steps without the optimizer; two more forward passes, operation by operation, on a hit.

## Lesson
[Lab 72](../../lessons/reproducibility/72_resume.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.repeated_step import RepeatedStep
from debugkit.registry import Context, rule

_SAID = {
    "draw": (
        "{operation} draws random numbers that no seed reaches",
        "Draw from the global generator, or a seeded one.",
    ),
    "kernel": (
        "{operation} gave another result for the same input",
        "Call torch.use_deterministic_algorithms(True), or replace the operation by one that adds in a fixed order.",
    ),
    "outside": (
        "{operation} was given another value: a clock, a counter, or randomness from outside torch",
        "Seed it with debugkit.seed_everything(), or draw with torch.",
    ),
    "backward": (
        "the gradient of {parameter} differs though the forward pass does not",
        "Call torch.use_deterministic_algorithms(True); look for randomness in a custom backward.",
    ),
}


@rule(
    "DK701",
    name="nondeterministic-step",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="2S",
    modes=("check",),
    needs=(RepeatedStep,),
)
def judge(seen: RepeatedStep, context: Context) -> Iterator[Finding]:
    first = seen.first
    if first is None:
        return
    what, fix = _SAID[first.source]
    said = what.format(operation=first.operation, parameter=first.parameter)
    where = f" in {first.module}" if first.module and first.source != "backward" else ""
    outside = first.source == "outside"
    yield context.finding(
        f"Two passes from the same seed differ: {said}{where}.",
        module=first.module,
        parameter=first.parameter,
        at=first.at,
        evidence={
            "source": first.source,
            "operation": first.operation,
            "different": seen.different,
            "compared": seen.compared,
            "threshold": 0,
        },
        fix=fix,
        severity=Severity.WARNING if outside else None,
        certainty=Certainty.HEURISTIC if outside else None,
    )

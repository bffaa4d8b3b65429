"""The same training step with the same seed gives a different result.

## What it finds
Two forward and backward passes with the same weights, seeds and batch, whose module outputs, loss or gradients are not
bit-identical. The finding names the first operation with a different result, its module, its line and the cause: a
random draw that the seed does not control, a nondeterministic kernel, or a value from outside torch.

## Why it hurts
A run cannot be repeated, a resumed run cannot be compared, and a bug cannot be bisected. A draw that the seed does not
control also differs between ranks.

## Evidence
The number of outputs and gradients that were compared, the number that differ (the threshold is 0), and the operation.

## Fix
Draw from a seeded generator. For a kernel, use `torch.use_deterministic_algorithms(True)`. Do not read a clock in the
forward pass.

## When it stays silent
- Dropout, noise and time drawn from the global generators; activation checkpointing.
- Seeded generators that are held by modules, closures or globals.
- State that the model carries from step to step; it is restored between the passes.

A NumPy generator that is held and drawn from, and that has no seed, is a `warning`: it is restored between the passes,
but two runs of the program differ. A value from outside torch is a `warning`, because a counter out of reach also
changes from pass to pass.

## Cost
These are two training steps without the optimizer. If they differ, two more forward passes find the operation. The
latter are slower, because each operation is recorded.

## Lesson
[Lab 72](../../lessons/reproducibility/72_a_step_apart.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import module_name

Source = Literal["draw", "kernel", "outside", "backward", "unseeded"]
"""draw: a random operation that the seed does not control. kernel: an operation with different results for the same
input. outside: a value from outside torch (a clock, a counter, randomness of the operating system). backward: the
forward passes are equal, but a gradient is not. unseeded: the passes are equal because a held generator was restored,
but the operating system seeded it."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between two steps that should be equal."""

    source: Source
    module: str | None
    operation: str | None = None
    at: SourceLine | None = None
    parameter: str | None = None


@measured_by(".measure:repeat_the_step", cost=6, requires=("batch",))
@dataclass(frozen=True, slots=True)
class RepeatedStep:
    """The bitwise comparison of two passes and their gradients."""

    compared: int
    """The number of module outputs, losses and gradients."""
    different: int
    first: Divergence | None


_MESSAGES = {
    "draw": (
        "`{operation}`{where} draws random numbers that the seed does not control",
        "Draw from the global generator, or from a generator with a seed.",
    ),
    "kernel": (
        "`{operation}`{where} gave different results for the same input",
        "Call `torch.use_deterministic_algorithms(True)`, or use an operation that adds in a fixed order.",
    ),
    "outside": (
        "`{operation}`{where} received different inputs from outside torch, such as a clock, a counter or another "
        "random generator",
        "Seed the source with `debugkit.seed_everything()`, or draw with torch.",
    ),
    "unseeded": (
        "the step draws from a NumPy generator that has no seed",
        "Pass a seed: `numpy.random.default_rng(seed)`.",
    ),
    "backward": (
        "the gradient of `{parameter}` differs, although the forward passes are equal",
        "Call `torch.use_deterministic_algorithms(True)`, and look for randomness in a custom `backward`.",
    ),
}


@rule(
    "DK701",
    name="nondeterministic-step",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(RepeatedStep,),
)
def judge(seen: RepeatedStep, context: Context) -> Iterator[Finding]:
    first = seen.first
    if first is None:
        return
    text, fix = _MESSAGES[first.source]
    where = f" in {module_name(first.module)}" if first.module else ""
    what = text.format(operation=first.operation, parameter=first.parameter, where=where)
    outside = first.source == "outside"
    compared = "runs of the program" if first.source == "unseeded" else "passes with the same seed"
    yield context.finding(
        f"Two {compared} differ: {what}.",
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
        severity=Severity.WARNING if outside or first.source == "unseeded" else None,
        certainty=Certainty.HEURISTIC if outside else None,
    )

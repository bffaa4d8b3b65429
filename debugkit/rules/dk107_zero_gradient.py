"""Parameters get a gradient, and it is exactly zero every time: they are connected and nothing comes through.

## What it finds
Modules whose every trainable parameter has a gradient that is there and is 0 in each element, on several batches with
several seeds, and once more after a step.

## Why it hurts
`.grad` is not None, so the checks that look for a cut graph pass, DistributedDataParallel is content, and AdamW decays
the weights towards zero. Stacked states indexed `[0]` instead of `[-1]`, a branch multiplied by a mask that is always
zero, a value clamped at its limit, or ReLUs that are all dead (DK111) do this.

## Evidence
The parameters, in how many passes they were looked at, and that a step and opened gates changed nothing.

## Fix
Go from the module's output towards the loss: find where it is indexed away, multiplied by zero, clamped or rounded.

## When it stays silent
Gates, LoRA matrices and projections that start at zero (they open in the step), rows of an embedding that no batch
touched, experts that no token chose and heads of tasks that are not in the batch (fed with nothing, or like a sibling
that trains), a camera switched off by its mask, a bias alone, queries and keys of attention to a single token. Where
the loss is 0, or not finite, nothing is said.

## Cost
One forward and backward pass, shared with DK109 to DK111; three more where something is zero.

## Lesson
[Lab 13](../../lessons/gradients/13_first_layer_only.md)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.gradient_flow import GradientFlow, ZeroGradient
from debugkit.registry import Context, rule

PASSES = 3
"""On fewer a zero may be chance: a ReLU, a router or a mask."""


@rule(
    "DK107",
    name="zero-gradient",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    cost="nS",
    modes=("check",),
    needs=(GradientFlow,),
    consequence_of=("DK105", "DK111", "DK209", "DK307"),
)
def judge(seen: GradientFlow, context: Context) -> Iterator[Finding]:
    if seen.passes < PASSES:
        return
    alive_modules = {path.rpartition(".")[0] for path in seen.alive}
    zero = [z for z in seen.zero if z.after_a_step and not z.one_of_several and z.module not in alive_modules]
    for place, members in _places(zero, seen.alive).items():
        if any(member.matrix for member in members):
            yield _finding(place, members, seen, context)


def _finding(place: str, members: list[ZeroGradient], seen: GradientFlow, context: Context) -> Finding:
    paths = [member.path for member in members]
    count = len(paths)
    return context.finding(
        f"{count} parameter{'s' * (count != 1)} of {place or 'the model'} "
        f"({', '.join(paths[:2])}{' …' * (count > 2)}) got a gradient of exactly 0 in {seen.passes} of {seen.passes} "
        "backward passes.",
        module=place,
        parameter=paths[0] if count == 1 else None,
        evidence={
            "parameters": paths,
            "numel": sum(member.numel for member in members),
            "passes": seen.passes,
            "zero_after_a_step": True,
            "with_another_gradient": len(seen.alive),
        },
        fix="Follow the module's output towards the loss, to where it is indexed away, multiplied by zero or clamped.",
        affects=paths,
    )


def _places(zero: Iterable[ZeroGradient], alive: tuple[str, ...]) -> dict[str, list[ZeroGradient]]:
    """By the outermost module without any other gradient; entries of one list together."""
    groups: dict[str, list[ZeroGradient]] = defaultdict(list)
    for member in zero:
        parts = member.module.split(".") if member.module else []
        dead = (depth for depth in range(len(parts) + 1) if not _any_below(alive, parts[:depth]))
        outermost = parts[: next(dead, len(parts))]
        while outermost and outermost[-1].isdigit():
            outermost = outermost[:-1]
        groups[".".join(outermost)].append(member)
    return groups


def _any_below(paths: tuple[str, ...], parts: list[str]) -> bool:
    prefix = "".join(f"{part}." for part in parts)
    return any(path.startswith(prefix) for path in paths)

"""Parameters are connected to the loss and get a gradient, but it is exactly zero every time.

## What it finds
Modules in which every trainable parameter has a gradient whose elements are all 0, on several batches with several
seeds, and again after a step.

## Why it hurts
`.grad` is not None, so checks for a cut graph pass, DistributedDataParallel does not raise, and AdamW decays the
weights towards zero. Typical causes are stacked states indexed with `[0]` instead of `[-1]`, a branch multiplied by a
mask that is always zero, a value clamped at its limit, and ReLUs that are all dead (DK111).

## Evidence
The parameters, the number of passes, and that the gradient was still zero after a step and with all-zero parameters set
to small values.

## Fix
Follow the module's output towards the loss. Look for the operation that selects another entry, multiplies by zero,
clamps or rounds.

## When it stays silent
- Gates, LoRA matrices and projections that start at zero: they get a gradient after the step.
- Embedding rows that no batch uses.
- Experts that no token selects, and heads of tasks that are not in the batch: their input is empty, or a sibling with
  the same input trains.
- A camera that its mask switches off.
- Modules of which only the bias has a zero gradient.
- Queries and keys of attention to a single token.

If the loss is 0 or not finite, the rule is not examined.

## Cost
Shared with DK109 to DK111. Three more passes if a gradient is zero.

## Lesson
[Lab 13](../../lessons/gradients/13_unmissed_layers.md)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.gradient_flow import GradientFlow, ZeroGradient
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, module_name, quoted

PASSES = 3
"""With fewer passes a zero can be chance: a ReLU, a router or a mask."""


@rule(
    "DK107",
    name="zero-gradient",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
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
        f"{counted(count, 'parameter')} of {module_name(place)} ({quoted(paths, 2)}) got a gradient of exactly 0 in "
        f"all {seen.passes} backward passes.",
        module=place,
        parameter=paths[0],
        evidence={
            "parameters": paths,
            "numel": sum(member.numel for member in members),
            "passes": seen.passes,
            "zero_after_a_step": True,
            "with_another_gradient": len(seen.alive),
        },
        fix="Follow the module's output towards the loss: find where it is deselected, multiplied by zero or clamped.",
        affects=paths,
    )


def _places(zero: Iterable[ZeroGradient], alive: tuple[str, ...]) -> dict[str, list[ZeroGradient]]:
    """The parameters by the outermost module without a non-zero gradient. Entries of one list are put together."""
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

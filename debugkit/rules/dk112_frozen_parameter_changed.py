"""A frozen parameter, or a running statistic of a frozen module, changed in a training step.

## What it finds
Parameters with `requires_grad=False` (or not declared trainable), and floating buffers of modules that are frozen as a
whole, that are not bit for bit the same after one training step.

## Why it hurts
A frozen vision tower is expected to give today the features it was pretrained to give. BatchNorm in training mode moves
its running statistics with every batch although its parameters are frozen; a weight written in the forward pass, or a
pattern that froze nothing, moves the rest. The policy then learns on features that drift, and the checkpoint no longer
matches the base model.

## Evidence
How many numbers changed, by how much at most, and whether that was during the forward pass or in `optimizer.step()`.

## Fix
For running statistics: `tower.eval()` after every `model.train()` (override `train()` of the model to do so). For
parameters: see that the freeze pattern matches, before the optimizer is built.

## When it stays silent
Frozen BatchNorm in eval mode; moving-average copies of a trainable module (teachers, EMA); integer counters; nothing
frozen.

## Cost
One copy of what is frozen, for one step.

## Lesson
[Lab 11](../../lessons/gradients/11_frozen_by_pattern.md)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.frozen_tensors import FrozenChange, FrozenTensors
from debugkit.registry import Context, rule


@rule(
    "DK112",
    name="frozen-parameter-changed",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1S",
    modes=("check", "watch"),
    needs=(FrozenTensors,),
    consequence_of=("DK113",),
)
def judge(seen: FrozenTensors, context: Context) -> Iterator[Finding]:
    groups: dict[tuple[str, str, str], list[FrozenChange]] = defaultdict(list)
    for change in seen.changes:
        tower = change.module.partition(".")[0]
        groups[tower, change.kind, change.cause].append(change)
    for (_, kind, cause), changes in groups.items():
        first = changes[0]
        more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
        when = "in optimizer.step()" if cause == "optimizer" else "during the forward pass"
        yield context.finding(
            f"Frozen {kind} {first.path}{more} changed {when}, by up to {max(c.largest for c in changes):.2g}.",
            module=first.module,
            parameter=first.path if kind == "parameter" else None,
            evidence={
                "tensors": [change.path for change in changes],
                "changed": sum(change.changed for change in changes),
                "numel": sum(change.numel for change in changes),
                "largest": max(change.largest for change in changes),
                "during": cause,
            },
            fix=_fix(first),
        )


def _fix(change: FrozenChange) -> str:
    if change.kind == "buffer":
        return f"Call {change.module}.eval() after every model.train(), so that its statistics stay."
    if change.cause == "optimizer":
        return "Freeze it before the optimizer is built, and see that the pattern that freezes matches its name."
    return f"Look in the forward pass for what writes to {change.path}."

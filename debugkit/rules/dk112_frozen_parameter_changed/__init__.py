"""A frozen parameter, or a running statistic of a frozen module, changed in a training step.

## What it finds
Parameters with `requires_grad=False` (or not declared trainable) and floating-point buffers of completely frozen
modules that are not bit for bit the same after one training step.

## Why it hurts
A frozen vision tower must return the features it was pretrained to return. BatchNorm in training mode updates its
running statistics with every batch, even if its parameters are frozen. Parameters change if the forward pass writes to
them, or if the freeze pattern matched nothing. The policy then learns from features that drift, and the checkpoint no
longer matches the base model.

## Evidence
How many numbers changed, the largest change, and whether it happened during the forward pass or in `optimizer.step()`.

## Fix
For running statistics, call `tower.eval()` after every `model.train()`, for example in the model's own `train()`. For
parameters, check that the freeze pattern matches before the optimizer is built.

## When it stays silent
Frozen BatchNorm in eval mode, moving-average copies of a trainable module (teachers, EMA, a momentum encoder that
follows inside the forward pass), integer counters, buffers that a module updates itself (a codebook that follows by
moving averages), and models without frozen parts.

## Cost
One copy of the frozen tensors, for one step.

## Lesson
[Lab 11](../../lessons/gradients/11_stale_cache.md)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import observed_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, code, counted, module_name, quoted, verb

Cause = Literal["optimizer", "forward"]


@dataclass(frozen=True, slots=True)
class FrozenChange:
    """One frozen tensor that is no longer bit for bit the same."""

    path: str
    module: str
    kind: Literal["parameter", "buffer"]
    cause: Cause
    """`optimizer`: it changed while `optimizer.step()` ran; `forward`: it changed before."""
    changed: int
    numel: int
    largest: float
    """The largest absolute change."""


@observed_by(".measure:FrozenTensorsProbe")
@dataclass(frozen=True, slots=True)
class FrozenTensors:
    """How many tensors were frozen, and which of them changed in one step."""

    watched: int
    changes: tuple[FrozenChange, ...]


@rule(
    "DK112",
    name="frozen-parameter-changed",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
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
        count = len(changes)
        what = (
            f"The frozen {kind} {code(first.path)}"
            if count == 1
            else f"{counted(count, f'frozen {kind}')} ({quoted((change.path for change in changes), 2)})"
        )
        when = "in `optimizer.step()`" if cause == "optimizer" else "during the forward pass"
        yield context.finding(
            f"{what} changed {when}, by up to {amount(max(change.largest for change in changes), 2)}.",
            module=first.module,
            parameter=first.path if kind == "parameter" else None,
            evidence={
                "tensors": [change.path for change in changes],
                "changed": sum(change.changed for change in changes),
                "numel": sum(change.numel for change in changes),
                "largest": max(change.largest for change in changes),
                "during": cause,
            },
            fix=_fix(first, count),
        )


def _fix(change: FrozenChange, count: int) -> str:
    if change.kind == "buffer":
        module = module_name(change.module)
        return f"Call `eval()` on {module} after every `model.train()`, so that its statistics do not change."
    if change.cause == "optimizer":
        what, names = verb(count, "it", "them"), verb(count, "its name", "their names")
        return f"Freeze {what} before the optimizer is built, and check that the freeze pattern matches {names}."
    return f"Find the code in the forward pass that writes to `{change.path}`."

"""A module runs, and what it computes changes nothing: neither the loss nor what the model returns.

## What it finds
Modules that are called and whose output is dropped, overwritten or multiplied away: a skip connection whose condition
is never true, features that are computed and not concatenated, a projector whose result is not assigned.

## Why it hurts
Nothing fails. The model trains without the branch, a little worse than it should, and pays for it in time and memory.
Its parameters get no gradient, which weight decay then drives to zero.

## Evidence
How far loss and outputs move when the module's output is replaced by noise of its own size, with the same draws
otherwise; the same with all-zero parameters opened, other draws, and in eval mode; and the floor of two equal passes.

## Fix
Follow the module's output in `forward()` to where it ends: a condition, a name assigned twice, a missing `x = x + …`.
If nothing needs it, do not call it.

## When it stays silent
Branches behind a zero-initialised gate or LoRA matrix; modules that work only in training or only in evaluation;
experts to which this batch gives no weight; modules that are called for what they leave in a cache, as the last layers
of a prefix are; metrics. A part whose output the module round it returns, and no one reads (the pooler of a vision
tower), is left out on purpose as a rule: `info`. Parts of a module that runs under `no_grad` are not tried one by one.

## Cost
One step; a few passes more if a module is suspected.

## Lesson
[Lab 05](../../lessons/shapes/05_skipped_skip.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.branch_effects import BranchEffect, BranchEffects
from debugkit.registry import Context, rule


@rule(
    "DK008",
    name="branch-without-effect",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    cost="2F",
    modes=("check",),
    needs=(BranchEffects,),
    consequence_of=("DK105", "DK306"),
)
def judge(seen: BranchEffects, context: Context) -> Iterator[Finding]:
    idle = [branch for branch in seen.branches if max(branch.moved, branch.moved_again) <= seen.floor]
    for branch in idle:
        if branch.returned_by is None:
            yield context.finding(
                f"`{branch.module}` ({branch.kind}) runs, but replacing its output moves neither loss nor output.",
                module=branch.module,
                evidence=_evidence(branch, seen),
                fix=f"Follow the output of `{branch.module}` in forward() to where it ends, or do not call it.",
            )
    for holder in dict.fromkeys(branch.returned_by for branch in idle if branch.returned_by is not None):
        unread = [branch for branch in idle if branch.returned_by == holder]
        names = ", ".join(f"`{branch.module}`" for branch in unread)
        yield context.finding(
            f"`{holder or '(root)'}` returns what {names} computes, and no one reads it.",
            module=unread[0].module,
            evidence={"modules": [branch.module for branch in unread], **_evidence(unread[0], seen)},
            fix="Nothing, if it is meant; otherwise read it, or build the model without that part.",
            severity=Severity.INFO,
        )


def _evidence(branch: BranchEffect, seen: BranchEffects) -> dict[str, object]:
    return {
        "moved": branch.moved,
        "moved_again": branch.moved_again,
        "floor": seen.floor,
        "parameters": branch.parameters,
    }

"""A module runs, but its output changes neither the loss nor what the model returns.

## What it finds
Modules that are called and whose output is dropped, overwritten or multiplied by zero: a skip connection whose
condition is never true, features that are computed and not concatenated, a projector whose result is not assigned.

## Why it hurts
Nothing fails. The model trains without the branch, a little worse than it should, and still pays for it in time and
memory. The branch's parameters get no gradient, and weight decay drives them to zero.

## Evidence
How far the loss and the outputs move when noise of the same size is added to the module's output, with equal random
draws. The same with all-zero parameters set to small values, with other draws, and in eval mode. `floor` is derived
from two identical passes.

## Fix
Follow the module's output through `forward()` to where it is lost: a condition, a name assigned twice, a missing
`x = x + …`. If nothing needs the output, do not call the module.

## When it stays silent
- Branches behind a zero-initialised gate or LoRA matrix.
- Modules that have an effect only in training or only in evaluation.
- Experts to which this batch gives no weight.
- Modules that are called to fill a cache, such as the last layers of a prefix.
- Metrics.
- Steps of which two equal passes differ by more than 1e-3 of their size.
- The parts of a module that runs under `no_grad`: they are not tried individually.

A part whose output the enclosing module returns and no other code uses (the pooler of a vision tower) is usually unused
on purpose: `info`.

## Cost
A few more passes if a module is suspected.

## Lesson
[Lab 05](../../lessons/shapes/05_blurry_vision.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import measured_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import module_name, quoted, sentence


@dataclass(frozen=True)
class BranchEffect(PlainData):
    """One module that was tried. `moved` is how far loss and outputs move when its output is replaced.

    `moved_again` is the largest such movement with all-zero parameters set to small values, with other draws, and in
    eval mode. `returned_by` is the enclosing module that returns the output without effect; None if the output is
    dropped at once.
    """

    module: str
    kind: str
    parameters: int
    moved: float
    moved_again: float
    returned_by: str | None


@measured_by(".measure:perturb_branches", cost=4, requires=("batch",))
@dataclass(frozen=True)
class BranchEffects(PlainData):
    """Every perturbed module without a gradient. `called` counts all modules that ran."""

    called: int
    branches: tuple[BranchEffect, ...]
    floor: float


@rule(
    "DK008",
    name="branch-without-effect",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(BranchEffects,),
    consequence_of=("DK105", "DK306"),
)
def judge(seen: BranchEffects, context: Context) -> Iterator[Finding]:
    idle = [branch for branch in seen.branches if max(branch.moved, branch.moved_again) <= seen.floor]
    for branch in idle:
        if branch.returned_by is None:
            yield context.finding(
                f"`{branch.module}` ({branch.kind}) runs, but replacing its output changes neither the loss nor the "
                "model's output.",
                module=branch.module,
                evidence=_evidence(branch, seen),
                fix=f"Find where `forward()` drops the output of `{branch.module}`, or do not call the module.",
            )
    for holder in dict.fromkeys(branch.returned_by for branch in idle if branch.returned_by is not None):
        unread = [branch for branch in idle if branch.returned_by == holder]
        names = quoted(branch.module for branch in unread)
        yield context.finding(
            sentence(f"{module_name(holder)} returns the output of {names}, but nothing uses it."),
            module=unread[0].module,
            evidence={"modules": [branch.module for branch in unread], **_evidence(unread[0], seen)},
            fix="Nothing to do if that is intended. Otherwise use the output, or build the model without that part.",
            severity=Severity.INFO,
        )


def _evidence(branch: BranchEffect, seen: BranchEffects) -> dict[str, object]:
    return {
        "moved": branch.moved,
        "moved_again": branch.moved_again,
        "floor": seen.floor,
        "parameters": branch.parameters,
    }

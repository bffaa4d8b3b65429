"""An optimizer, or a group that should hold a part of the model, has nothing to train.

## What it finds
Optimizers of which every parameter is frozen, and empty parameter groups while parameters that receive a gradient are
in no group at all.

## Why it hurts
An optimizer takes an empty group and frozen parameters without a word. `name.startswith("backbone")` after a rename
gives an empty group with its own learning rate, and the part it was meant for never changes.

## Evidence
Each such group: how many parameters it holds, how many are frozen, its learning rate; and what is in no group.

## Fix
Freeze first, build the optimizer then, from `model.named_parameters()`, and assert that each pattern matches something.

## When it stays silent
An empty group beside which nothing is missing (a no-decay group of a model without biases), frozen parameters beside
trainable ones in an optimizer, several optimizers of which one trains (a GAN's players freeze each other in turn).
Under `watch()` an optimizer is judged at its own step.

## Cost
Free: it reads the groups after the observed step.

## Lesson
[Lab 14](../../lessons/gradients/14_missing_from_optimizer.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.optimizer_groups import Group, OptimizerGroups
from debugkit.registry import Context, rule


@rule(
    "DK103",
    name="optimizer-holds-nothing-trainable",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check", "watch"),
    needs=(OptimizerGroups,),
)
def judge(seen: OptimizerGroups, context: Context) -> Iterator[Finding]:
    held = sum(group.held for group in seen.groups)
    if held == sum(group.frozen for group in seen.groups):
        yield context.finding(
            f"All {held} parameters that the optimizer holds are frozen: a step changes nothing.",
            evidence={"groups": [_row(group) for group in seen.groups]},
            fix="Set requires_grad on what should train before the optimizer is built.",
        )
        return
    empty = [group for group in seen.groups if group.held == 0]
    if empty and seen.orphans:
        paths = [orphan.path for orphan in seen.orphans]
        yield context.finding(
            f"{empty[0].name} is empty, and {len(paths)} parameters that receive a gradient are in no group: "
            f"{', '.join(paths[:3])}{' …' * (len(paths) > 3)}.",
            evidence={"groups": [_row(group) for group in seen.groups], "not_held": paths},
            fix="Correct the pattern that fills this group, and assert that it matches a parameter.",
            severity=None if context.declare.all_optimizers else Severity.INFO,
            affects=paths,
        )


def _row(group: Group) -> dict[str, object]:
    return {"group": group.name, "held": group.held, "frozen": group.frozen, "lr": group.learning_rate}

"""An optimizer, or a group that should hold a part of the model, has nothing to train.

## What it finds
Optimizers whose parameters are all frozen, and empty parameter groups while parameters that get a gradient are in no
group. Also, as `info`, an empty group with a weight decay of 0 if every other group of its optimizer has a weight decay
and they hold all biases and weights of norms: the pattern that should have selected these matched nothing.

## Why it hurts
An optimizer accepts an empty group and frozen parameters without a warning. After a rename,
`name.startswith("backbone")` gives an empty group with its own learning rate, and the backbone never changes. With
`"LayerNorm.weight"` in a list of names that must not decay, and a model that calls them `norm1`, all of them decay.

## Evidence
For each group, the number of parameters it holds, how many of them are frozen, and its learning rate. Also the
parameters that are in no group. For a group without weight decay, the weight decay of each group, and how many
trainable parameters of one dimension it holds.

## Fix
Freeze first. Then build the optimizer from `model.named_parameters()`, and assert that each pattern matches something.

## When it stays silent
An empty group if nothing is missing (a no-decay group for a model without biases and norms, or beside another one that
is not empty), frozen parameters next to trainable
ones in the same optimizer, and several optimizers of which one trains (the networks of a GAN freeze each other in
turn). Under `watch()` an optimizer is judged at its own step.

## Lesson
[Lab 14](../../lessons/gradients/14_no_difference.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.optimizer_groups import Group, OptimizerGroups
from debugkit.module_paths import shared_module
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, quoted, verb


@rule(
    "DK103",
    name="optimizer-holds-nothing-trainable",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(OptimizerGroups,),
)
def judge(seen: OptimizerGroups, context: Context) -> Iterator[Finding]:
    held = sum(group.held for group in seen.groups)
    if held == sum(group.frozen for group in seen.groups):
        what = "The only parameter" if held == 1 else f"All {held:,} parameters"
        yield context.finding(
            f"{what} that the optimizer holds {verb(held, 'is', 'are')} frozen: a step changes nothing.",
            at=next(iter(seen.built), None),
            evidence={"groups": [_row(group) for group in seen.groups]},
            fix="Set `requires_grad=True` for the parameters that should train, before the optimizer is built.",
        )
        return
    empty = [group for group in seen.groups if group.held == 0]
    if empty and seen.orphans:
        paths = [orphan.path for orphan in seen.orphans]
        yield context.finding(
            f"{empty[0].name} is empty, and {_orphans(len(paths))} in no group: {quoted(paths)}.",
            module=shared_module(paths),
            parameter=paths[0],
            at=seen.built_at(empty[0].name),
            evidence={"groups": [_row(group) for group in seen.groups], "not_held": paths},
            fix="Correct the pattern that selects this group's parameters, and assert that it matches at least one.",
            severity=None if context.declare.all_optimizers else Severity.INFO,
            affects=paths,
        )
        return
    for group in empty:
        others = [one for one in seen.groups if one.optimizer == group.optimizer and one.held]
        vectors = sum(one.vectors for one in others)
        if vectors and group.weight_decay == 0 and all(one.weight_decay for one in others):
            yield _all_decay(group, others, vectors, seen, context)


def _all_decay(group: Group, others: Sequence[Group], vectors: int, seen: OptimizerGroups, context: Context) -> Finding:
    return context.finding(
        f"{group.name} has a weight decay of 0 and is empty. {counted(vectors, 'parameter')} of one dimension, such as "
        f"biases, {verb(vectors, 'decays', 'decay')} in {others[0].name if len(others) == 1 else 'others'}.",
        at=seen.built_at(group.name),
        evidence={
            "groups": [
                {**_row(one), "weight_decay": one.weight_decay, "vectors": one.vectors} for one in (*others, group)
            ]
        },
        fix="Correct the pattern that selects the parameters without weight decay, such as `parameter.ndim < 2`, or "
        "remove the group.",
        severity=Severity.INFO,
        certainty=Certainty.HEURISTIC,
    )


def _orphans(count: int) -> str:
    return f"{counted(count, 'parameter')} that {verb(count, 'receives a gradient is', 'receive a gradient are')}"


def _row(group: Group) -> dict[str, object]:
    return {"group": group.name, "held": group.held, "frozen": group.frozen, "lr": group.learning_rate}

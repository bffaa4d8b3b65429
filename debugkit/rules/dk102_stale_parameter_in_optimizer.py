"""The optimizer holds tensors of a module that was replaced, and not those of its replacement.

## What it finds
Optimizers that were built before the model was changed: they hold tensors that are no parameter of the model any more
and get no gradient, while parameters that do get one are held by nobody.

## Why it hurts
`model.head = nn.Linear(…)`, a resized embedding, `copy.deepcopy`, or wrapping that makes new parameters, after the
optimizer was built: it goes on stepping the old tensors. The new ones keep their initial values, the rest of the model
learns around them, and nothing fails.

## Evidence
How many tensors are held that are not the model's, with their shapes, and which parameters are held by nobody.

## Fix
Build the optimizer last, or add the new parameters with `optimizer.add_param_group` and rebuild its state.

## When it stays silent
Parameters outside the model that are trained too (a loss's temperature, a critic, a discriminator): they get a
gradient, or nothing of the model is missing from the optimizers. With `Declare(all_optimizers=False)` it is `info`.

## Cost
Free: it reads the groups after the observed step.

## Lesson
[Lab 14](../../lessons/gradients/14_missing_from_optimizer.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.optimizer_groups import OptimizerGroups
from debugkit.registry import Context, rule


@rule(
    "DK102",
    name="stale-parameter-in-optimizer",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check", "watch"),
    needs=(OptimizerGroups,),
)
def judge(seen: OptimizerGroups, context: Context) -> Iterator[Finding]:
    wanted = {orphan.shape for orphan in seen.orphans}
    stale = [s for s in seen.strangers if s.in_mixed_optimizer or s.shape in wanted]
    if not stale or not seen.orphans:
        return
    paths = [orphan.path for orphan in seen.orphans]
    shown = ", ".join(paths[:3]) + " …" * (len(paths) > 3)
    yield context.finding(
        f"{stale[0].group} holds {len(stale)} tensor{'s' * (len(stale) != 1)} that the model no longer has, "
        f"and {shown} {'are' if len(paths) > 1 else 'is'} in no optimizer.",
        module=paths[0].rpartition(".")[0],
        parameter=paths[0] if len(paths) == 1 else None,
        evidence={
            "stale_shapes": [list(stranger.shape) for stranger in stale],
            "stale_numel": sum(stranger.numel for stranger in stale),
            "groups": sorted({stranger.group for stranger in stale}),
            "not_held": paths,
        },
        fix="Build the optimizer after the last change to the model's modules.",
        severity=None if context.declare.all_optimizers else Severity.INFO,
        affects=paths,
    )

"""The optimizer holds tensors of a module that was replaced, and not those of its replacement.

## What it finds
Optimizers that were built before the model was changed. They hold tensors that are no longer parameters of the model
and get no gradient, while parameters that get one are in no optimizer.

## Why it hurts
The model was changed after the optimizer was built: `model.head = nn.Linear(…)`, a resized embedding, `copy.deepcopy`,
or a wrapper that creates new parameters. The optimizer continues to update the old tensors. The new ones keep their
initial values, the rest of the model adapts to them, and nothing fails.

## Evidence
How many tensors the optimizer holds that the model does not have, their shapes, and which parameters are in no
optimizer.

## Fix
Build the optimizer last. `optimizer.add_param_group` adds the new parameters, but the old ones stay in the
optimizer.

## When it stays silent
Parameters outside the model that train as well (a loss's temperature, a critic, a discriminator): they get a gradient,
or no parameter of the model is missing from the optimizers. With `Declare(all_optimizers=False)` the finding is `info`.

## Lesson
[Lab 14](../../lessons/gradients/14_no_difference.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.optimizer_groups import OptimizerGroups
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, quoted, verb


@rule(
    "DK102",
    name="stale-parameter-in-optimizer",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(OptimizerGroups,),
)
def judge(seen: OptimizerGroups, context: Context) -> Iterator[Finding]:
    wanted = {orphan.shape for orphan in seen.orphans}
    stale = [s for s in seen.strangers if s.in_mixed_optimizer or s.shape in wanted]
    if not stale or not seen.orphans:
        return
    paths = [orphan.path for orphan in seen.orphans]
    yield context.finding(
        f"{stale[0].group} holds {counted(len(stale), 'tensor')} that the model no longer has, "
        f"and {quoted(paths)} {verb(len(paths), 'is', 'are')} in no optimizer.",
        module=paths[0].rpartition(".")[0],
        parameter=paths[0],
        at=seen.built_at(stale[0].group),
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

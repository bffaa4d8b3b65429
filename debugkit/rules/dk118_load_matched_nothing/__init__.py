"""`load_state_dict(strict=False)` loaded no tensor: no name of the checkpoint is a name of the module.

## What it finds
A call of `load_state_dict(…, strict=False)` that changed nothing, because the module has none of the names in the
checkpoint. Usually one prefix is the whole difference: `module.`, `model.`,
`policy.`, or the name that a part has in another project.

## Why it hurts
Nothing raises, and the training runs: from random weights. The loss falls more slowly than it should, and nobody looks
at the loading code, because it ran.

## Evidence
How many tensors the checkpoint has, how many matched (0), a name from each side, and the prefix to replace if one would
make most names match.

## Fix
Rename the keys, and load with `strict=True`. Where parts are meant to be new, read the result:
`missing, unexpected = model.load_state_dict(state, strict=False)`, and raise for each key that you do not expect.

## When it stays silent
- At least one tensor matched: a backbone without its head, an adapter.
- The same module was loaded again later, and something matched.
- The module has no tensors, or the state dict is empty.
- Weights that are loaded before `debugkit.watch()`; `debugkit run` sees the whole script.
  [DK114](dk114_checkpoint_not_loaded.md) compares a model with its file.

## Lesson
No lab of its own; [Lab 49](../../lessons/actions/49_sees_less_when_told.md) is about a load that leaves out one part.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.loop.state_loads import StateLoad, StateLoads
from debugkit.rule import Context, rule
from debugkit.rule_text import code, counted


@rule(
    "DK118",
    name="load-matched-nothing",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(StateLoads,),
)
def judge(seen: StateLoads, context: Context) -> Iterator[Finding]:
    if not seen.loads:
        raise NotExamined("Nothing was loaded with `strict=False` while the loop was watched.")
    for load in seen.loads:
        if load.matched == 0 and load.names is not None:
            saved, own = load.names
            yield context.finding(
                f"`load_state_dict(strict=False)` loaded none of {counted(load.tensors, 'tensor')} into "
                f"`{load.module}`: the names differ, such as {code(saved)} in the checkpoint and "
                f"{code(own)} in the module.",
                module=load.path,
                at=load.at,
                evidence={
                    "tensors": load.tensors,
                    "matched": load.matched,
                    "missing": load.missing,
                    "in_checkpoint": saved,
                    "in_module": own,
                    "renaming": list(load.renaming) if load.renaming else None,
                },
                fix=_fix(load),
            )


def _fix(load: StateLoad) -> str:
    if load.renaming is None:
        return "Check that this is the checkpoint of this model, rename its keys, and load with `strict=True`."
    old, new = load.renaming
    if not new:
        return f"Remove the prefix {code(old)} from the keys of the checkpoint, and load with `strict=True`."
    if not old:
        return f"Put {code(new)} before the keys of the checkpoint, and load with `strict=True`."
    return f"Replace the prefix {code(old)} by {code(new)} in the checkpoint's keys, and load with `strict=True`."

"""Training calls the inner module and not its DDP wrapper, so gradients are never averaged over ranks.

## What it finds
An optimizer stepped with gradients of wrapped parameters, none of which came from a forward through the wrapper
(DistributedDataParallel, FullyShardedDataParallel). The inner module, a submodule or one of its methods was called
instead.

## Why it hurts
The wrapper's `forward` sets up the averaging of gradients. Without it every rank trains its own model on its own part
of the data. Nothing raises and the loss falls, but several GPUs learn no more than one, and the checkpoint contains
only rank 0's model.

## Evidence
The number of parameters whose gradient bypassed the wrapper, the module that was called and where, and how many
gradient elements were reduced by hand before the step. A reduction of at least half of the trained elements counts as
averaging by hand.

## Fix
Call the wrapper: `loss = ddp(**batch).loss`. Move code that needs a method of the inner module into its `forward`.

## When it stays silent
- Evaluation through `.module`, on one rank or on all, with or without `no_grad`.
- A submodule that is called in addition to the wrapper, in the same backward.
- A discriminator that is called without its wrapper in the generator's step, and whose gradients are then discarded.
- `no_sync()`; gradients that the loop averages by hand with `all_reduce`.

## Cost
Hooks on the wrapper, on the wrapped module and on its direct children.

## Lesson
[Lab 82](../../lessons/distributed/82_two_validation_losses.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.wrapper_use import WrapperUses
from debugkit.rule import Context, rule
from debugkit.rule_text import module_name, sentence

_BY_HAND = 0.5
"""Share of the trained elements that a reduction must cover to count as averaging of gradients, and not of a metric."""


@rule(
    "DK803",
    name="wrapper-bypassed",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(WrapperUses,),
)
def judge(seen: WrapperUses, context: Context) -> Iterator[Finding]:
    for use in seen.wrappers:
        bypass = use.bypass
        if bypass is None or bypass.reduced >= _BY_HAND * max(bypass.elements, 1):
            continue
        called = sentence(module_name(bypass.module)) if bypass.module else "The module"
        yield context.finding(
            f"{called} inside {use.kind} was called directly, and the optimizer stepped with the resulting gradients: "
            "they are not averaged over ranks.",
            module=bypass.module or use.module,
            at=bypass.at,
            evidence={
                "parameters": bypass.parameters,
                "forwards_through_the_wrapper": use.forwards,
                "reduced_by_hand": bypass.reduced,
                "elements": bypass.elements,
                "world_size": use.world_size,
                "threshold": _BY_HAND,
            },
            fix=f"Call the {use.kind} object itself, and move code that needs the inner module into its `forward()`.",
        )

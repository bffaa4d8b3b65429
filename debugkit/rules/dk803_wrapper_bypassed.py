"""Training calls the bare module and not its DDP wrapper, so gradients are never averaged over ranks.

## What it finds
An optimizer stepped on gradients of wrapped parameters, and none of them came from a forward through the wrapper
(DistributedDataParallel, FullyShardedDataParallel): the module inside, one of its parts or one of its methods was
called instead.

## Why it hurts
The wrapper's `forward` is what arms the averaging. Without it every rank trains its own model on its own share of the
data. Nothing raises, the loss falls, each GPU learns as much as one GPU does, and the checkpoint is rank 0's.

## Evidence
How many parameters got their gradient past the wrapper, which part was called and where, and how many numbers were
reduced by hand before the step, against half of what was trained.

## Fix
Call the wrapper: `loss = ddp(**batch).loss`. What needs a method of the module goes into its `forward`.

## When it stays silent
Evaluation through `.module`, on one rank or on all, with or without `no_grad`; a part called beside the wrapper in the
same backward; a discriminator passed without its wrapper at the generator's turn, whose gradients are thrown away;
`no_sync()`; gradients that the loop averages by hand with `all_reduce`.

## Cost
Free: hooks on the wrapper, on what it wraps and on that one's direct parts.

## Lesson
No lab of its own; [Lab 81](../../lessons/distributed/81_missing_image_hang.md) is about the wrapper's other surprise.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.wrapper_use import WrapperUses
from debugkit.registry import Context, rule

_BY_HAND = 0.5
"""Share of the trained numbers that must have been handed to a reduction for it to be the averaging, and no metric."""


@rule(
    "DK803",
    name="wrapper-bypassed",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check", "watch"),
    needs=(WrapperUses,),
)
def judge(seen: WrapperUses, context: Context) -> Iterator[Finding]:
    for use in seen.wrappers:
        bypass = use.bypass
        if bypass is None or bypass.reduced >= _BY_HAND * max(bypass.elements, 1):
            continue
        called = "The module" if not bypass.module else bypass.module
        yield context.finding(
            f"{called} inside {use.kind} was called by itself, and the optimizer stepped on what came of it: "
            "these gradients are not averaged over ranks.",
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
            fix=f"Call the {use.kind} object itself; move what needs a method of the module into its forward().",
        )

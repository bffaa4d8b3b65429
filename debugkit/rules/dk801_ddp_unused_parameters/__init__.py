"""Some parameters get no gradient in a step, but DistributedDataParallel waits for all of them.

## What it finds
A DistributedDataParallel without `find_unused_parameters` ran a forward and a backward, and some of the parameters that
it reduces got no gradient. The finding names them before the next forward raises.

## Why it hurts
DDP averages a bucket of gradients once all parameters of the bucket have a gradient. An unused parameter never gets
one. This rank leaves its backward with gradients that were not averaged, uses them in its step, and raises "Expected to
have finished reduction in the prior iteration" one step later, at an unrelated line. If other ranks did use the
parameter, they wait in their backward until the timeout, without a message about the cause.

## Evidence
The names of the unused parameters, the number of all parameters, the rank, and `find_unused_parameters`.

## Fix
Use every parameter in every step: on a batch without an image, run the vision tower anyway (on a blank frame, with its
result masked out). `find_unused_parameters=True` is also correct, and costs one traversal of the graph per step. Freeze
a part that never trains.

## When it stays silent
`find_unused_parameters=True` or `static_graph=True`; frozen parameters and those that DDP ignores; parameters whose
gradient is zero; steps under `no_sync()`; models without DDP (see DK106).

## Cost
One hook per parameter, which records that a gradient arrived. `check()` runs the step without communication, so a
single rank can run it.

## Lesson
[Lab 81](../../lessons/distributed/81_one_waits.md)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.wrapper_use import WrapperUse, WrapperUses
from debugkit.module_paths import shared_module
from debugkit.rule import Context, rule
from debugkit.rule_text import code, listed, quoted

_NAMED = 3


@rule(
    "DK801",
    name="ddp-unused-parameters",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(WrapperUses,),
)
def judge(seen: WrapperUses, context: Context) -> Iterator[Finding]:
    for use in seen.wrappers:
        # In check() DDP never communicates, so there `synchronises` does not describe the real run.
        synchronises = use.synchronises or context.mode == "check"
        if not use.unused or use.finds_unused or use.static_graph or not synchronises:
            continue
        yield context.finding(
            f"{len(use.unused):,} of the {use.parameters:,} parameters that {use.kind} reduces got no gradient on rank "
            f"{use.rank}: {_in_words(use)}. Its next `forward()` will raise, and ranks that used them will wait.",
            module=shared_module(use.unused),
            evidence={
                "unused": list(use.unused),
                "parameters": use.parameters,
                "rank": use.rank,
                "world_size": use.world_size,
                "find_unused_parameters": use.finds_unused,
                "threshold": 0,
            },
            fix="Use every parameter in every step, or pass `find_unused_parameters=True`.",
            affects=use.unused,
        )


def _in_words(use: WrapperUse) -> str:
    """The names if there are only a few, otherwise the number in each module."""
    if len(use.unused) <= _NAMED:
        return quoted(use.unused)
    start = len(use.module.split(".")) if use.module else 0
    parts = Counter(".".join(name.split(".")[: start + 1]) for name in use.unused)
    return listed(f"{count} in {code(part)}" for part, count in parts.items())

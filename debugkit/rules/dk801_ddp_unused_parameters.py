"""A step gives some parameters no gradient, and DistributedDataParallel waits for one.

## What it finds
A DistributedDataParallel without `find_unused_parameters` went through a forward and a backward, and some of the
parameters that it reduces got no gradient. They are named now, before its next forward raises.

## Why it hurts
DDP counts: a bucket of gradients is averaged once all its parameters have reported. A parameter that took no part never
does. This rank leaves its backward with gradients that were not averaged, steps on them, and raises "Expected to have
finished reduction in the prior iteration" one step later, at a line that is innocent. If the other ranks did use the
parameter, they wait in their backward until the time-out, and nobody says for whom.

## Evidence
The unused parameters by name, of how many; the rank; `find_unused_parameters`.

## Fix
Let every step use every parameter: on a batch without an image run the tower all the same (on a blank frame, its result
masked out). `find_unused_parameters=True` is as right and costs a walk through the graph each step. A part that never
trains is frozen instead.

## When it stays silent
`find_unused_parameters=True` or `static_graph=True`; frozen parameters and those DDP was told to ignore; parameters
that got a gradient of zero; steps under `no_sync()`; a model that no DDP wraps (DK106 looks at those).

## Cost
One hook a parameter, which notes that a gradient came. `check()` runs the step without communication, so one rank may
ask alone.

## Lesson
[Lab 81](../../lessons/distributed/81_missing_image_hang.md)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.wrapper_use import WrapperUse, WrapperUses
from debugkit.registry import Context, rule

_NAMED = 3


@rule(
    "DK801",
    name="ddp-unused-parameters",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1S",
    modes=("check", "watch"),
    needs=(WrapperUses,),
)
def judge(seen: WrapperUses, context: Context) -> Iterator[Finding]:
    for use in seen.wrappers:
        # check() keeps DDP from communicating, so there it says nothing about the real run.
        synchronises = use.synchronises or context.mode == "check"
        if not use.unused or use.finds_unused or use.static_graph or not synchronises:
            continue
        yield context.finding(
            f"{len(use.unused)} of the {use.parameters} parameters that {use.kind} reduces got no gradient on rank "
            f"{use.rank}: {_in_words(use)}. Its next forward raises, and ranks that used them wait.",
            module=_common_module(use.unused),
            evidence={
                "unused": list(use.unused),
                "parameters": use.parameters,
                "rank": use.rank,
                "world_size": use.world_size,
                "find_unused_parameters": use.finds_unused,
                "threshold": 0,
            },
            fix="Let every step use every parameter, or pass find_unused_parameters=True.",
            affects=use.unused,
        )


def _in_words(use: WrapperUse) -> str:
    """A few names; where there are many, the modules they are in and how many each has."""
    if len(use.unused) <= _NAMED:
        return ", ".join(use.unused)
    start = len(use.module.split(".")) if use.module else 0
    parts = Counter(".".join(name.split(".")[: start + 1]) for name in use.unused)
    return ", ".join(f"{count} in {part}" for part, count in parts.items())


def _common_module(names: tuple[str, ...]) -> str:
    """The innermost module that holds all of these parameters."""
    split = [name.split(".")[:-1] for name in names]
    common: list[str] = []
    for level in zip(*split, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return ".".join(common)

"""What is trainable is not what was declared to be: a freeze pattern matched too much, too little or nothing.

## What it finds
Declared patterns that match no parameter, trainable parameters that no pattern names, and named ones that are frozen.

## Why it hurts
Freezing goes by name, and names change: a wrapper adds a prefix, a release renames a tower, and
`if "vision_tower" in name` is never true again. The tower that should stay drifts, or the head that should learn does
not, and the loss falls either way.

## Evidence
The patterns without a match, the parameters on the wrong side, and how many numbers they have.

## Fix
Correct the pattern, and fail at start-up when one matches nothing.

## When it stays silent
Nothing is declared (`Declare(trainable=("action_head.*", "*lora_*"))`). A tied parameter is declared if any of its
names is. What wrappers (compile, DDP, FSDP) put into a name does not count.

## Cost
Free: it reads names and flags.

## Lesson
[Lab 11](../../lessons/gradients/11_frozen_by_pattern.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.trainable_set import TrainableSet
from debugkit.registry import Context, rule


@rule(
    "DK113",
    name="trainable-set-differs",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check",),
    needs=(TrainableSet,),
)
def judge(seen: TrainableSet, context: Context) -> Iterator[Finding]:
    if seen.unmatched:
        yield context.finding(
            f"{_listed([repr(pattern) for pattern in seen.unmatched])} of trainable= matches no parameter.",
            evidence={"unmatched": list(seen.unmatched), "trainable": seen.trainable},
            fix="Compare the pattern with the names in model.named_parameters().",
        )
    if seen.undeclared:
        yield _finding(seen.undeclared, seen.numel_undeclared, "trainable and not declared to be", context)
    if seen.frozen:
        yield _finding(seen.frozen, seen.numel_frozen, "declared trainable and frozen", context)


def _finding(paths: tuple[str, ...], numel: int, side: str, context: Context) -> Finding:
    count = len(paths)
    return context.finding(
        f"{count} parameter{'s are' if count > 1 else ' is'} {side}: {_listed(paths)}.",
        module=_shared_module(paths),
        parameter=paths[0] if count == 1 else None,
        evidence={"parameters": list(paths), "numel": numel},
        fix="Set requires_grad by the declared patterns, before the optimizer is built.",
        affects=paths,
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + " …" * (len(names) > 3)


def _shared_module(paths: Sequence[str]) -> str:
    """The innermost module that has all the parameters."""
    shared = paths[0].split(".")[:-1]
    for path in paths[1:]:
        parts = path.split(".")
        shared = shared[: next((i for i, part in enumerate(shared) if part != parts[i]), len(shared))]
    return ".".join(shared)

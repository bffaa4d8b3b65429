"""The trainable parameters are not the declared ones: a freeze pattern matched too much, too little or nothing.

## What it finds
Declared patterns that match no parameter, trainable parameters that no pattern names, and named parameters that are
frozen.

## Why it hurts
Parameters are frozen by name, and names change: a wrapper adds a prefix, a release renames a tower, and
`if "vision_tower" in name` is never true again. The tower that should stay frozen drifts, or the head that should learn
does not. The loss falls in both cases.

## Evidence
The patterns without a match, the affected parameters, and how many numbers they hold.

## Fix
Correct the pattern, and raise at start-up if a pattern matches nothing.

## When it stays silent
Nothing is declared (`Declare(trainable=("action_head.*", "*lora_*"))`). A tied parameter is declared if any of its
names is. Prefixes that wrappers (compile, DDP, FSDP) add to a name are ignored.

## Lesson
[Lab 11](../../lessons/gradients/11_stale_cache.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.module_paths import shared_module
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, quoted, verb


@measured_by(".measure:compare_the_trainable_set", cost=0)
@dataclass(frozen=True, slots=True)
class TrainableSet:
    """Paths are dotted. A tied parameter is listed under its first name; a pattern may match any of its names."""

    trainable: int
    unmatched: tuple[str, ...]
    """Declared patterns that match no parameter."""
    undeclared: tuple[str, ...]
    """Trainable parameters that no pattern names."""
    frozen: tuple[str, ...]
    """Parameters that a pattern names and that are frozen."""
    numel_undeclared: int
    numel_frozen: int


@rule(
    "DK113",
    name="trainable-set-differs",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(TrainableSet,),
)
def judge(seen: TrainableSet, context: Context) -> Iterator[Finding]:
    if seen.unmatched:
        count = len(seen.unmatched)
        yield context.finding(
            f"The pattern{'s' * (count > 1)} {quoted(seen.unmatched)} in `Declare(trainable=…)` "
            f"{verb(count, 'matches', 'match')} no parameter.",
            evidence={"unmatched": list(seen.unmatched), "trainable": seen.trainable},
            fix="Compare the pattern with the names in `model.named_parameters()`.",
        )
    if seen.undeclared:
        yield _finding(seen.undeclared, seen.numel_undeclared, "trainable but not declared", context)
    if seen.frozen:
        yield _finding(seen.frozen, seen.numel_frozen, "declared trainable but frozen", context)


def _finding(paths: tuple[str, ...], numel: int, side: str, context: Context) -> Finding:
    count = len(paths)
    return context.finding(
        f"{counted(count, 'parameter')} {verb(count, 'is', 'are')} {side}: {quoted(paths)}.",
        module=shared_module(paths),
        parameter=paths[0],
        evidence={"parameters": list(paths), "numel": numel},
        fix="Set `requires_grad` from the declared patterns, before the optimizer is built.",
        affects=paths,
    )

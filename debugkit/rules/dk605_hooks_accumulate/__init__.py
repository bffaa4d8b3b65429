"""The loop registers the same hook again in every step and removes none, so each pass calls more of them.

## What it finds
A module or parameter on which the number of hooks with the same code rises from each step to the next. Forward hooks,
backward hooks and their `pre` variants count, also those that `Tensor.register_hook` puts on a parameter.

## Why it hurts
A hook stays until `remove()` is called on the handle that `register_forward_hook` returned. After a thousand steps, a
thousand copies of it run in each pass, and every step is slower than the one before. What a hook collects, such as
features for a metric, is collected once for each copy and is never freed. A gradient hook that scales or clips acts
once for each copy, so it changes the training. Documented cases:
[lucent](https://github.com/greentfrapp/lucent/issues/45), where each rendering became slower, and
[X-LoRA in PEFT](https://github.com/huggingface/peft/pull/2761), which registered a hook for each generated token.

## Evidence
How many hooks with this code the module has, the consecutive steps in which their number rose, and the threshold, 4.
The line is the one that defines the hook.

## Fix
Register the hook once, before the loop. For a hook that is needed in a few steps, call `handle.remove()` after each of
them, in a `finally` block.

## When it stays silent
- Hooks that are registered once, or removed before the step ends.
- Several different hooks on one module.
- Hooks that are registered once an epoch.
- Hooks of PyTorch itself and of debugkit.
- A run of fewer than five steps.

## Cost
The hooks are counted after each of the first ten steps.

## Lesson
No lab of its own; in [Lab 64](../../lessons/memory/64_fine_on_fifty.md) memory rises with each step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, module_name, verb

RISES = 4
"""Consecutive steps in which the number must have risen."""


@dataclass(frozen=True)
class RisingHooks(PlainData):
    """The hooks of one kind with one code on one module or parameter, whose number has risen in the last steps."""

    owner: str
    """The path of the module or parameter."""
    is_parameter: bool
    kind: str
    """Such as `forward hook`."""
    function: str
    count: int
    rises: int
    """The number of consecutive steps, up to the last one, in which `count` rose."""
    at: SourceLine


@observed_by(".measure:HooksProbe")
@dataclass(frozen=True)
class HookCounts(PlainData):
    """How often the hooks were counted, and those whose number rises."""

    steps: int
    rising: tuple[RisingHooks, ...]


@rule(
    "DK605",
    name="hooks-accumulate",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(HookCounts,),
)
def judge(seen: HookCounts, context: Context) -> Iterator[Finding]:
    if seen.steps <= RISES:
        raise NotExamined(f"The run is too short: {seen.steps} of {counted(RISES + 1, 'step')}.")
    together: dict[tuple[SourceLine, str], list[RisingHooks]] = defaultdict(list)
    for one in seen.rising:
        if one.rises >= RISES:
            together[one.at, one.kind].append(one)
    for hooks in together.values():
        first, *others = hooks
        place = f"`{first.owner}`" if first.is_parameter else module_name(first.owner)
        more = f", and so {verb(len(others), 'has', 'have')} {counted(len(others), 'other')}" if others else ""
        yield context.finding(
            f"`{first.function}` is registered again in every step: {place} has {counted(first.count, first.kind)} "
            f"with this code after {counted(seen.steps, 'step')}{more}.",
            module=None if first.is_parameter else first.owner,
            parameter=first.owner if first.is_parameter else None,
            at=first.at,
            evidence={"hooks": first.count, "rises": first.rises, "threshold": RISES},
            fix="Register the hook once, before the loop, or call `remove()` on its handle before the step ends.",
        )

"""A trainable parameter is in no group of any optimizer, so it never changes.

## What it finds
Parameters with `requires_grad=True` that get a gradient from the loss but are held by no optimizer. Also those that are
not in the model at all: in a plain list or dict of a module, or in a closure of the loss function.

## Why it hurts
The gradient is computed and thrown away. Everything else adapts around the untrained part, and the loss still falls.
Typical causes are a backbone that a name pattern misses (`startswith("backbone")` after a rename), a head that was
replaced after the optimizer was built, and a module that was created later.

## Evidence
The parameters, how many numbers they hold, whether each got a gradient in one step, and which parameter groups are
empty. An empty group is often a pattern that matched nothing.

## Fix
Build the groups from `model.named_parameters()` so that every parameter falls into exactly one of them, with a last
group for the remaining parameters, and assert it. If a parameter should not train, call
`parameter.requires_grad_(False)`.

## When it stays silent
Frozen parameters, tied parameters (compared by identity), several optimizers for one model, and the parameters of
another module that the loss function holds. The first eight steps of a watched loop whose optimizers were not passed
in, because they are found when they step. The finding is `info` for parameters without a gradient (unused, or of the
other network of a GAN) and if not every optimizer was passed in: `Declare(all_optimizers=False)`, or a watched loop in
which an optimizer that was not passed in stepped the parameters.

## Lesson
[Lab 14](../../lessons/gradients/14_no_difference.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.loop.optimizer_events import OptimizerEvents
from debugkit.module_paths import shared_module
from debugkit.observation import observed_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, quoted, verb


@dataclass(frozen=True, slots=True)
class ForgottenParameter:
    """A trainable parameter that is in no group of any known optimizer."""

    path: str
    numel: int
    received_gradient: bool


@observed_by(".measure:OptimizerCoverageProbe")
@dataclass(frozen=True, slots=True)
class OptimizerCoverage:
    """The state after one backward. Parameters are compared by identity, so tied ones count once."""

    optimizers: int
    trainable: int
    """How many trainable parameters the model has."""
    forgotten: tuple[ForgottenParameter, ...]
    empty_groups: tuple[str, ...]
    """Groups without parameters, such as `AdamW group 1`."""
    outside: tuple[ForgottenParameter, ...] = ()
    """Parameters that received a gradient and are neither in the model nor in an optimizer. `path` names the holder."""
    built_at: SourceLine | None = None
    """The line that built the only optimizer, where the program has one such line."""


@rule(
    "DK101",
    name="parameter-not-in-optimizer",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(OptimizerCoverage,),
    uses=(OptimizerEvents,),
    consequence_of=("DK102", "DK103"),
)
def judge(seen: OptimizerCoverage, events: OptimizerEvents | None, context: Context) -> Iterator[Finding]:
    lost = [parameter for parameter in seen.forgotten if parameter.received_gradient]
    idle = [parameter for parameter in seen.forgotten if not parameter.received_gradient]
    all_known = context.declare.all_optimizers and not (events and events.foreign_steps)
    if lost:
        yield _finding(lost, seen, context, None if all_known else Severity.INFO)
    if seen.outside:
        yield _outside(seen, context, None if all_known else Severity.INFO)
    if idle:
        yield _finding(idle, seen, context, Severity.INFO)


def _outside(seen: OptimizerCoverage, context: Context, severity: Severity | None) -> Finding:
    paths = [parameter.path for parameter in seen.outside]
    count = len(paths)
    return context.finding(
        f"{counted(count, 'parameter')} outside the model {verb(count, 'receives', 'receive')} a gradient and "
        f"{verb(count, 'is', 'are')} in no optimizer: {quoted(paths)}. A list or a dict registers nothing.",
        parameter=paths[0],
        at=seen.built_at,
        evidence={
            "parameters": paths,
            "numel": sum(parameter.numel for parameter in seen.outside),
            "optimizers": seen.optimizers,
        },
        fix="Register it: `nn.Parameter` as an attribute of a module, `nn.ModuleList`, `nn.ModuleDict` or "
        "`nn.ParameterList`. Or pass it to the optimizer.",
        severity=severity,
    )


def _finding(
    parameters: list[ForgottenParameter], seen: OptimizerCoverage, context: Context, severity: Severity | None
) -> Finding:
    paths = [parameter.path for parameter in parameters]
    count = len(paths)
    gradient = f"{verb(count, 'receives', 'receive')} {'a' if parameters[0].received_gradient else 'no'} gradient"
    return context.finding(
        f"{count:,} of {counted(seen.trainable, 'trainable parameter')} {gradient} and {verb(count, 'is', 'are')} in "
        f"no optimizer: {quoted(paths)}.",
        module=shared_module(paths),
        parameter=paths[0],
        at=seen.built_at,
        evidence={
            "parameters": paths,
            "numel": sum(parameter.numel for parameter in parameters),
            "empty_groups": list(seen.empty_groups),
            "optimizers": seen.optimizers,
        },
        fix="Put every trainable parameter in exactly one group, or freeze it with `requires_grad_(False)`.",
        severity=severity,
        affects=paths,
    )

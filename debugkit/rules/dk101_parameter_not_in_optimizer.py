"""A trainable parameter is in no group of any optimizer, so it never changes.

## What it finds
Parameters with `requires_grad=True` that no optimizer holds although the loss sends them a gradient.

## Why it hurts
The gradient is computed, paid for and thrown away. A backbone left out by a name pattern (`startswith("backbone")`
after a rename), a head replaced after the optimizer was built, or a module created later trains not at all, while
everything else adapts around it and the loss still falls.

## Evidence
Which parameters, how many numbers they have, whether each received a gradient in one step, and which parameter groups
are empty: an empty group is often the pattern that matched nothing.

## Fix
Build the groups from `model.named_parameters()` so that every parameter falls in exactly one, the last group being "all
the rest", and assert it. Where it should not train, say so: `parameter.requires_grad_(False)`.

## When it stays silent
Frozen parameters, tied ones (compared by identity), several optimizers over one model. Parameters without a gradient
(unused, or of the other player of a GAN), or a model of which not every optimizer was passed in
(`Declare(all_optimizers=False)`), are reported as `info`.

## Cost
Free: it reads the groups after the observed step.

## Lesson
[Lab 14](../../lessons/gradients/14_missing_from_optimizer.md)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.optimizer_coverage import ForgottenParameter, OptimizerCoverage
from debugkit.registry import Context, rule


@rule(
    "DK101",
    name="parameter-not-in-optimizer",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check", "watch"),
    needs=(OptimizerCoverage,),
    consequence_of=("DK102", "DK103"),
)
def judge(seen: OptimizerCoverage, context: Context) -> Iterator[Finding]:
    lost = [parameter for parameter in seen.forgotten if parameter.received_gradient]
    idle = [parameter for parameter in seen.forgotten if not parameter.received_gradient]
    if lost:
        yield _finding(lost, seen, context, None if context.declare.all_optimizers else Severity.INFO)
    if idle:
        yield _finding(idle, seen, context, Severity.INFO)


def _finding(
    parameters: list[ForgottenParameter], seen: OptimizerCoverage, context: Context, severity: Severity | None
) -> Finding:
    paths = [parameter.path for parameter in parameters]
    gradient = "receive a gradient and" if parameters[0].received_gradient else "receive no gradient and"
    subject = f"{len(paths)} of {seen.trainable} trainable parameters {gradient} are in no optimizer"
    return context.finding(
        f"{subject}: {', '.join(paths[:3])}{' …' * (len(paths) > 3)}.",
        module=_shared_module(paths),
        parameter=paths[0] if len(paths) == 1 else None,
        evidence={
            "parameters": paths,
            "numel": sum(parameter.numel for parameter in parameters),
            "empty_groups": list(seen.empty_groups),
            "optimizers": seen.optimizers,
        },
        fix="Put every trainable parameter in exactly one group, or freeze it with requires_grad_(False).",
        severity=severity,
        affects=paths,
    )


def _shared_module(paths: list[str]) -> str:
    """The innermost module that has all the parameters."""
    levels = zip(*(path.split(".")[:-1] for path in paths), strict=False)
    return ".".join(level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, levels))

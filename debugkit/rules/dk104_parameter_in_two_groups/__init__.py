"""A parameter is held twice, so one step updates it more than once.

## What it finds
The same parameter twice in one optimizer, or in two optimizers that train together.

## Why it hurts
The parameter moves twice per step, with two learning rates and two sets of moments. Typical causes are overlapping name
patterns and tied weights that are collected by name. torch refuses a parameter in two groups. It does not refuse one
that is twice in the same group (it only warns), in two optimizers, or in groups that were changed by hand.

## Evidence
The parameters, and the groups that hold each of them.

## Fix
Collect parameters by identity, and assign each to the first group that matches: `seen = set()`, `if id(p) not in seen`.

## When it stays silent
Tied weights in one group through `model.parameters()`, several optimizers without overlap, and optimizers that wrap
another one and share its groups (SAM, Lookahead). Under `watch()`, two optimizers that are used one after the other
(Adam, then LBFGS, or a new Adam for each learning rate) do not train together. If two do train together, the finding
is a `warning`, since that can be intended.

## Lesson
[Lab 14](../../lessons/gradients/14_no_difference.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.optimizer_groups import Duplicate, OptimizerGroups
from debugkit.module_paths import shared_module
from debugkit.rule import Context, rule
from debugkit.rule_text import NAMES, code, counted, listed, verb

TURNS = 3
"""Under `watch()`, optimizers train together once they have alternated this often."""


@rule(
    "DK104",
    name="parameter-in-two-groups",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(OptimizerGroups,),
)
def judge(seen: OptimizerGroups, context: Context) -> Iterator[Finding]:
    within = [double for double in seen.duplicates if double.one_optimizer]
    across = [double for double in seen.duplicates if not double.one_optimizer]
    if within:
        yield _finding(within, "twice in one optimizer", seen, context, None)
    across = [d for d in across if context.mode == "check" or d.alternations >= TURNS]
    if across:
        yield _finding(across, "in two optimizers", seen, context, Severity.WARNING)


def _finding(
    doubles: list[Duplicate], where: str, seen: OptimizerGroups, context: Context, severity: Severity | None
) -> Finding:
    paths = [double.path or "a tensor outside the model" for double in doubles]
    names = [code(double.path) if double.path else "a tensor outside the model" for double in doubles]
    count = len(paths)
    return context.finding(
        f"{counted(count, 'parameter')} {verb(count, 'is', 'are')} {where}: {listed(names, NAMES)} "
        f"({listed(doubles[0].groups)}).",
        parameter=doubles[0].path,
        module=shared_module(double.path for double in doubles if double.path),
        at=seen.built_at(doubles[0].groups[0]),
        evidence={"parameters": paths, "groups": [list(double.groups) for double in doubles]},
        fix="Put each parameter in exactly one group. Compare parameters by identity, not by name.",
        severity=severity,
    )

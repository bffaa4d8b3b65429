"""Different learning rates of parameter groups that no step uses, because one rate is written into all groups."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from debugkit.finding import Finding, Severity, SourceLine
from debugkit.loop.optimizer_events import OptimizerEvents
from debugkit.loop.step_intervals import name_of
from debugkit.rule import Context
from debugkit.source_names import tree_of

_RATIO = 2.0
_STEPS = 10
_SEARCHED = 100.0  # the range of a search for a learning rate
_STEPS_OF_A_RUN_THAT_GOES_ON = 1000
"""A search for a learning rate uses one for all groups for some hundred steps, and restores the groups."""


def one_rate_for_all_groups(seen: OptimizerEvents, number: int, context: Context) -> Iterator[Finding]:
    """An optimizer that was built with different rates and has used one rate for all groups from its first steps on."""
    for rates in seen.group_rates:
        if rates.optimizer != number or len(rates.built) < 2 or min(rates.built) <= 0:
            continue
        enough = rates.equal_steps >= (_STEPS if context.ended else _STEPS_OF_A_RUN_THAT_GOES_ON)
        unused = rates.different_steps == 0 or (rates.different_steps == 1 and rates.last_different == 0)
        if not enough or not unused or max(rates.built) < _RATIO * min(rates.built) or len(set(rates.now)) != 1:
            continue
        if rates.now[0] > _SEARCHED * rates.first:
            continue
        steps = [event.at for event in seen.events if event.kind == "step" and number in event.optimizers]
        yield context.finding(
            f"The groups of {name_of(seen, number)} were built with learning rates from {min(rates.built):.2g} to "
            f"{max(rates.built):.2g}, but {rates.equal_steps:,} steps used one rate for all groups, now "
            f"{rates.now[0]:.2g}.",
            at=_writer([rates.at, *steps]) or rates.at or next(iter(steps), None),
            evidence={
                "smallest_built_rate": min(rates.built),
                "largest_built_rate": max(rates.built),
                "needed_ratio": _RATIO,
                "steps_with_one_rate": rates.equal_steps,
                "other_steps": rates.different_steps,
                "needed_steps": _STEPS,
                "rate_now": rates.now[0],
            },
            fix="Keep the rate that each group was built with, and multiply it by the factor of the schedule, as "
            "`LambdaLR` does. `OneCycleLR` and `CyclicLR` take a list with a rate for each group.",
            severity=Severity.WARNING,
        )


def _writer(lines: list[SourceLine | None]) -> SourceLine | None:
    """The only line that writes a group's rate without reading the group: in these files, or in the same functions."""
    known = [line for line in dict.fromkeys(lines) if line is not None]
    trees = [(file, tree_of(file)) for file in dict.fromkeys(line.file for line in known)]
    everywhere = [SourceLine(file, line) for file, tree in trees for line in sorted(set(_lines_that_write(tree)))]
    around = [
        SourceLine(file, line)
        for file, tree in trees
        for part in tree.body
        if any(part.lineno <= one.line <= (part.end_lineno or 0) for one in known if one.file == file)
        for line in sorted(set(_lines_that_write(part)))
    ]
    return next((found[0] for found in (everywhere, around) if len(found) == 1), None)


def _lines_that_write(tree: ast.AST) -> Iterator[int]:
    for loop in ast.walk(tree):
        if not isinstance(loop, ast.For) or getattr(loop.iter, "attr", "") != "param_groups":
            continue
        for node in ast.walk(loop):
            match node:
                case ast.Assign(
                    targets=[ast.Subscript(value=ast.Name(id=group), slice=ast.Constant(value="lr"))], value=value
                ) if not any(isinstance(part, ast.Name) and part.id == group for part in ast.walk(value)):
                    yield node.lineno

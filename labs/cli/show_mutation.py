"""`lab dev mutate` as an author reads it."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import Any

from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from labs.authoring.mutation.mutate import Mutation
from labs.authoring.mutation.reasons import FILE
from labs.authoring.mutation.record import MutantRecord
from labs.cli.console import out

_CONTEXT_LINES = 1


def show_mutation(result: Mutation) -> None:
    """The counts, what each check refused, and every hole as a small diff."""
    record, counts = result.record, result.record.counts
    mark = "[good]✓[/]" if not result.holes and not result.untrue else "[bad]✗[/]"
    not_run = "" if record.outcomes else " [quiet](outcome checks not run)[/]"
    out.print(
        f"  {mark} {result.lab.id}  {result.lab.slug}  [quiet]{counts.mutants} mutants, {record.cpu_s:.0f} CPU s[/]\n"
        f"      refused {counts.refused_structural} structural, {counts.refused_outcome} outcome{not_run} · "
        f"equivalent {counts.equivalent} · holes {counts.holes}\n",
        soft_wrap=True,
    )
    out.print(_by_check(record.mutants))
    _show_names(record.mutants)
    for hole in result.holes:
        _show_hole(result, hole)
    for name in result.untrue:
        out.print(
            f"  [bad]{name} is not equivalent[/]: a check refuses it. Delete its reason in {result.lab.name}/{FILE}."
        )
    if result.holes:
        out.print(
            f"  [quiet]A hole needs a stronger check, or a reason in {result.lab.name}/{FILE}:[/]\n"
            f'  {result.holes[0].id} = "…"\n'
        )


def as_json(result: Mutation) -> dict[str, Any]:
    """This lab's part of the JSON document: the record, with a diff for each hole."""
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(result.record)
    document["refused_despite_reason"] = list(result.untrue)
    for mutant in document["mutants"]:
        if mutant["outcome"] == "hole":
            mutant["diff"] = _diff(result, mutant["id"])
    return document


def _by_check(mutants: tuple[MutantRecord, ...]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(width=4)
    table.add_column(justify="right")
    table.add_column(ratio=1)
    for check, number in Counter(one.check for one in mutants if one.check is not None).most_common():
        table.add_row("", str(number), Text(check or ""))
    return table


def _show_names(mutants: tuple[MutantRecord, ...]) -> None:
    """The mutants that get a wrong fix's name: an author checks that each is that wrong fix."""
    for one in mutants:
        if one.named is not None:
            out.print(
                f"      [quiet]named[/] {one.named}  [quiet]{one.id}, line {one.line}:[/]",
                Text(one.summary),
                soft_wrap=True,
            )


def _show_hole(result: Mutation, hole: MutantRecord) -> None:
    out.print(f"\n  [bad]hole[/] {hole.id}  [quiet]{hole.file}, line {hole.line}[/]")
    if hole.grader_error:
        out.print(Text(f"      The check itself failed on it: {hole.grader_error}"))
    out.print(Syntax(_diff(result, hole.id), "diff", background_color="default", word_wrap=True))


def _diff(result: Mutation, name: str) -> str:
    mutant = result.mutants[name]
    lines: list[str] = []
    for file, text in mutant.files.items():
        before = result.solution[file].splitlines()
        lines += list(difflib.unified_diff(before, text.splitlines(), lineterm="", n=_CONTEXT_LINES))[2:]
    return "\n".join(lines)

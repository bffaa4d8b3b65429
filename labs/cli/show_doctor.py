"""The text output of `lab doctor`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from labs.cli.console import out
from labs.learner.doctor import Condition
from labs.locale import translated

MARKS = {"ok": ("✓", "good"), "limited": ("–", "warn"), "missing": ("✗", "bad")}


def show_doctor(conditions: Sequence[Condition]) -> None:
    """One line per condition; below a missing one, what that means."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(width=2)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for condition in conditions:
        sign, style = MARKS[condition.state]
        found = Text(translated(condition.found))
        if condition.state != "ok":
            found.append(f"\n{translated(condition.meaning)}", style="quiet")
        table.add_row(Text(f" {sign}", style=style), Text(translated(condition.name)), found)
    out.print()
    out.print(table)
    out.print(f"\n  {_verdict(conditions)}\n")


def _verdict(conditions: Sequence[Condition]) -> str:
    states = [condition.state for condition in conditions]
    if "missing" in states:
        return f"[bad]{translated('Something that the lab needs is missing; the lines marked ✗ say what to do.')}[/]"
    if "limited" in states:
        aside = translated("Lines marked – say what this machine does not have.")
        return f"[good]{translated('Ready.')}[/] [quiet]{aside}[/]"
    return f"[good]{translated('Ready.')}[/]"

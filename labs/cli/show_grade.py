"""A grade as it comes: a line a check while it runs, then what it means."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from labs.cli.console import OUTCOME_MARKS, mark, next_command, out
from labs.grading.catalog import Lab

if TYPE_CHECKING:
    from labs.grading.grades import CheckResult, Grade

VERDICT_STYLES = {"passed": "good", "failed": "bad", "error": "warn"}
VERDICT_MARKS = {key: (OUTCOME_MARKS[key][0], style) for key, style in VERDICT_STYLES.items()}


@contextlib.contextmanager
def stream(lab: Lab, quiet: bool) -> Iterator[Callable[[CheckResult], None] | None]:
    """Yield what to call with each check's result; on a terminal a line below says that the grade still runs."""
    if quiet:
        yield None
        return
    out.print(f"\n  [strong]{lab.id} · {escape(lab.title)}[/]\n")
    with out.status("[quiet]grading …[/]", spinner="dots", spinner_style="quiet"):
        yield show_check


def show_check(check: CheckResult) -> None:
    """One line for a check that has just ended."""
    aside = "not run: the checks above come first" if check.outcome == "not_run" else check.kind
    out.print(f"  {mark(OUTCOME_MARKS, check.outcome)} {escape(check.title)}  [quiet]{aside}[/]", soft_wrap=True)


def show_verdict(grade: Grade, lab: Lab) -> None:
    """One line for one of several labs."""
    reason = f"  [quiet]{escape(grade.reason)}[/]" if grade.reason else ""
    out.print(f"  {mark(VERDICT_MARKS, grade.verdict)} {lab.id}  {escape(lab.title)}{reason}", soft_wrap=True)


def show_grade(grade: Grade, lab: Lab) -> None:
    """The verdict, and for a refusal the ladder from the symptom to the next instrument."""
    from labs.grading.feedback import rungs

    word = {"passed": "passed", "failed": "not mended yet", "error": "the grader failed"}[grade.verdict]
    style = VERDICT_STYLES[grade.verdict]
    out.print(f"\n  {mark(VERDICT_MARKS, grade.verdict)} [{style}]{word}[/]  [quiet]{grade.seconds:.1f} s[/]\n")
    ladder = Table(box=None, show_header=False, padding=(0, 1))
    ladder.add_column(style="quiet", no_wrap=True, justify="right")
    ladder.add_column(overflow="fold")
    for rung in rungs(grade, lab):
        ladder.add_row(f" {rung.label}", Text(rung.text, style=rung.style))
    if ladder.row_count:
        out.print(ladder)
    if grade.verdict == "passed":
        next_command(f"lab solution {lab.id}", "compare with the shipped solution")
        next_command("lab list", "choose another")
    out.print()

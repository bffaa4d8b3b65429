"""`lab demo`: one lab from the symptom to a passing grade, on one screen."""

from __future__ import annotations

import typer
from rich.markup import escape

from labs.cli.console import next_command, out, paragraph
from labs.cli.show_diff import show_diff
from labs.cli.show_findings import show_findings
from labs.cli.show_grade import show_check, show_verdict
from labs.cli.show_output import SubmissionOutput
from labs.grading.catalog import Lab, find
from labs.learner.pack import require_solutions
from labs.locale import message, translated

HEADINGS = {
    "symptom": "The symptom",
    "refused": "The grader refuses the broken policy",
    "diagnosed": "debugkit finds the place",
    "fixed": "The fix",
    "passed": "The grader accepts the fixed policy",
}


def demo() -> None:
    """Show one lab from the symptom to a passing grade. Exit code 0 if every stage gives the expected result."""
    from labs.learner.demo import DEMO_LAB, Stage, play

    require_solutions("solutions")
    lab = find(DEMO_LAB)
    out.print(f"\n  [strong]{lab.id} · {escape(translated(lab.title))}[/]")
    paragraph(lab.symptom, "quiet")
    numbers = {name: number for number, name in enumerate(HEADINGS, start=1)}

    def announce(name: str) -> None:
        out.print()
        out.rule(f"[quiet]{numbers[name]}[/] {translated(HEADINGS[name])}", align="left", style="quiet")
        out.print()

    wrong: list[Stage] = []
    for stage in play(lab, announce, show_check):
        _show(stage, lab)
        if not stage.as_expected:
            wrong.append(stage)
    out.print()
    if wrong:
        names = ", ".join(translated(HEADINGS[stage.name]) for stage in wrong)
        out.print(f"  [bad]{message('The demo did not give the expected result at: {names}.', names=names)}[/]")
        next_command("lab doctor", "check this machine")
        out.print()
        raise typer.Exit(1)
    done, turn = translated("Refused, diagnosed, fixed, passed."), translated("Now it is your turn:")
    out.print(f"  [good]{done}[/] [quiet]{turn}[/]\n")
    next_command("lab list", "choose a lab")
    out.print()


def _show(stage: object, lab: Lab) -> None:
    from labs.learner.demo import Stage

    assert isinstance(stage, Stage)
    if stage.output:
        printed = SubmissionOutput()
        printed.write(stage.output.rstrip())
        printed.finish()
    if stage.grade is not None:
        out.print()
        show_verdict(stage.grade, lab)
    if stage.report is not None:
        show_findings(stage.report)
    if stage.diff:
        show_diff(stage.diff)

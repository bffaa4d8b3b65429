"""`lab demo`: the story of one lab on one screen."""

from __future__ import annotations

import typer
from rich.markup import escape
from rich.text import Text

from labs.cli.console import next_command, out, paragraph
from labs.cli.show_diff import show_diff
from labs.cli.show_findings import show_findings
from labs.cli.show_grade import show_check, show_verdict
from labs.grading.catalog import Lab, find

CHAPTERS = {
    "symptom": "What a person sees",
    "refused": "The grader looks, and refuses it",
    "diagnosed": "debugkit says where",
    "mended": "The fix",
    "passed": "The grader looks again",
}


def demo() -> None:
    """See one lab from symptom to proven fix. Exit 0 only if every stage went as it must."""
    from labs.learner.demo import DEMO_LAB, Stage, play

    lab = find(DEMO_LAB)
    out.print(f"\n  [strong]{lab.id} · {escape(lab.title)}[/]")
    paragraph(lab.symptom, "quiet")
    numbers = {name: number for number, name in enumerate(CHAPTERS, start=1)}

    def announce(name: str) -> None:
        out.print()
        out.rule(f"[quiet]{numbers[name]}[/] {CHAPTERS[name]}", align="left", style="quiet")
        out.print()

    wrong: list[Stage] = []
    for stage in play(lab, announce, show_check):
        _show(stage, lab)
        if not stage.as_it_must:
            wrong.append(stage)
    out.print()
    if wrong:
        names = ", ".join(stage.name for stage in wrong)
        out.print(
            f"  [bad]The demo did not go as it must[/] at: {names}. [command]lab doctor[/] looks at this machine.\n"
        )
        raise typer.Exit(1)
    out.print("  [good]Refused, diagnosed, mended, proven.[/] [quiet]Now one of your own:[/]\n")
    next_command("lab list", "choose a lab")
    out.print()


def _show(stage: object, lab: Lab) -> None:
    from labs.learner.demo import Stage

    assert isinstance(stage, Stage)
    for line in stage.output.rstrip().splitlines():
        out.print(Text(f"  {line}"), soft_wrap=True)
    if stage.grade is not None:
        out.print()
        show_verdict(stage.grade, lab)
    if stage.report is not None:
        show_findings(stage.report)
    if stage.diff:
        show_diff(stage.diff)

"""Commands that run the learner's copy and do not judge it: run and diagnose."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from labs.cli.attempt_commands import record
from labs.cli.console import err, next_command, out, paragraph, print_hanging
from labs.cli.one_document import one_document
from labs.cli.options import JsonOption, LabNumber, WorkspaceOption
from labs.cli.overview_commands import read_progress
from labs.cli.which_lab import which_lab
from labs.grading.catalog import Lab
from labs.learner import progress
from labs.learner.lesson import lesson_place
from labs.learner.pack import has_solutions, require_solutions
from labs.learner.workspace import Workspace, resolve
from labs.locale import message, translated


def run(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Reproduce the symptom with your copy of a lab."""
    lab = which_lab(number, workspace)
    worked = show_symptom(lab, resolve(workspace).started_attempt(lab))
    if lesson_place(lab) is not None and lab.lesson.startswith("lessons/"):
        next_command(f"lab open {lab.id}", "read how to measure it")
    elif lesson_place(lab) is not None:
        next_command(f"lab open {lab.id}", "read how such a lab works")
    if has_solutions():
        next_command(f"lab diagnose {lab.id}", "have debugkit look, which counts like a hint")
    raise typer.Exit(int(not worked))


def show_symptom(lab: Lab, attempt: Path, server: Any = None) -> bool:
    """Run it and show what it prints; False if it ended in an error. `server` is a running ForkServer."""
    from labs.cli.show_output import SubmissionOutput
    from labs.grading import run_symptom

    out.print()
    print_hanging("  ", Text(f"{lab.id} · {translated(lab.title)}", style="strong"))
    out.print()
    printed = SubmissionOutput()
    ran = run_symptom(lab, attempt, printed, server=server)
    printed.finish()
    if ran.ending is not None:
        out.print()
        print_hanging(Text(f"  {translated('stopped')}  ", style="bad"), Text(translated(ran.ending)))
    out.print()
    return ran.ending is None


def diagnose(number: LabNumber, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Run debugkit on your copy of a lab. Exit code 1 if it finds an error or your code raises."""
    from labs.cli.show_findings import has_errors, show_findings
    from labs.grading import diagnose as examine

    lab = which_lab(number, workspace)
    require_solutions("diagnosis")
    attempt = resolve(workspace).started_attempt(lab)
    with one_document(as_json) as emit:
        with err.status(f"[quiet]{message('debugkit examines lab {id} …', id=lab.id)}[/]", spinner_style="quiet"):
            report = examine(lab, attempt)
        emit(report)
    counts = bool(report["findings"]) and _count_as_hint(lab, resolve(workspace))
    if not as_json:
        out.print()
        show_findings(report)
        if counts:
            paragraph("This counts like a hint.", "quiet")
            out.print()
        _show_next(lab, resolve(workspace))
        out.print()
    raise typer.Exit(int(has_errors(report)))


def _count_as_hint(lab: Lab, here: Workspace) -> bool:
    """Record that debugkit showed a finding, once and only before the pass. Whether it was recorded now."""
    known = read_progress(here).labs.get(lab.id)
    if known is not None and (known.diagnosed or known.status != "started"):
        return False
    record(here, progress.diagnosed(lab.id, datetime.now(UTC)))
    return True


def _show_next(lab: Lab, here: Workspace) -> None:
    if read_progress(here).status(lab.id) == "passed":
        next_command(f"lab solution {lab.id}", "compare your fix with ours")
    else:
        next_command(f"lab grade {lab.id}", "when you think it is fixed")

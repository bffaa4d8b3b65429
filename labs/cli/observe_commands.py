"""Commands that run the learner's copy: run and diagnose, which do not judge it, and watch, which grades every save."""

from __future__ import annotations

from datetime import UTC, datetime

import typer
from rich.text import Text

from labs.cli.attempt_commands import record
from labs.cli.console import err, next_command, notice, out, paragraph, print_hanging
from labs.cli.one_document import one_document
from labs.cli.options import JsonOption, LabNumber, WorkspaceOption
from labs.cli.overview_commands import read_progress
from labs.grading.answers import ANSWERS
from labs.grading.catalog import Lab, find
from labs.learner import progress
from labs.learner.workspace import Workspace, resolve


def run(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Reproduce the symptom with your copy of a lab."""
    from labs.cli.show_output import SubmissionOutput
    from labs.grading import run_symptom

    lab = find(number)
    attempt = resolve(workspace).started_attempt(lab)
    out.print()
    print_hanging("  ", Text(f"{lab.id} · {lab.title}", style="strong"))
    out.print()
    printed = SubmissionOutput()
    ran = run_symptom(lab, attempt, printed)
    printed.finish()
    if ran.ending is not None:
        out.print()
        print_hanging(Text("  stopped  ", style="bad"), Text(ran.ending))
    out.print()
    next_command(f"lab open {lab.id}", "read how to measure it")
    next_command(f"lab diagnose {lab.id}", "have debugkit look, which counts like a hint")
    raise typer.Exit(int(ran.ending is not None))


def diagnose(number: LabNumber, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Run debugkit on your copy of a lab. Exit code 1 if it finds an error or your code raises."""
    from labs.cli.show_findings import has_errors, show_findings
    from labs.grading import diagnose as examine

    lab = find(number)
    attempt = resolve(workspace).started_attempt(lab)
    with one_document(as_json) as emit:
        with err.status(f"[quiet]debugkit examines lab {lab.id} …[/]", spinner_style="quiet"):
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


def watch(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Grade a lab now and after every save, until it passes or you press Ctrl-C."""
    from labs.cli.show_grade import show_grade, stream
    from labs.grading import ForkServer
    from labs.learner.graded_attempt import grade_attempt
    from labs.learner.watch import saves

    lab, here = find(number), resolve(workspace)
    attempt = here.started_attempt(lab)
    graded = (*lab.editable, ANSWERS) if lab.questions else lab.editable
    with ForkServer() as server:
        for _ in saves(attempt, graded):
            with stream(lab, quiet=False) as on_check:
                done, message = grade_attempt(here, lab, on_check=on_check, server=server)
            if message:
                notice(message)
            show_grade(done, lab)
            if done.verdict == "passed":
                return
            print_hanging("  ", Text(f"waiting for you to save {' or '.join(graded)} · Ctrl-C ends", "quiet"))
            out.print()

"""Commands that run the learner's copy without judging it: run, diagnose; and watch, which grades at every save."""

from __future__ import annotations

import sys

import typer
from rich.markup import escape

from labs.cli.console import err, next_command, out
from labs.cli.one_document import one_document
from labs.cli.options import JsonOption, LabNumber, WorkspaceOption
from labs.cli.overview_commands import read_progress
from labs.grading.catalog import Lab, find
from labs.learner.workspace import Workspace, resolve


def run(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Reproduce the symptom with your copy of a lab."""
    from labs.grading import run_symptom

    lab = find(number)
    attempt = resolve(workspace).started_attempt(lab)
    out.print(f"\n  [strong]{lab.id} · {escape(lab.title)}[/]\n")
    ran = run_symptom(lab, attempt, sys.stdout)
    if not ran.output.endswith("\n"):
        out.print()
    if ran.ending is not None:
        out.print(f"\n  [bad]ended[/]  {escape(ran.ending)}", soft_wrap=True)
    out.print()
    next_command(f"lab diagnose {lab.id}", "ask debugkit")
    raise typer.Exit(int(ran.ending is not None))


def diagnose(number: LabNumber, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Ask debugkit about your copy of a lab. Exit 1 if it finds an error or your code raises."""
    from labs.cli.show_findings import has_errors, show_findings
    from labs.grading import diagnose as examine

    lab = find(number)
    attempt = resolve(workspace).started_attempt(lab)
    with one_document(as_json) as emit:
        with err.status(f"[quiet]debugkit examines lab {lab.id} …[/]", spinner_style="quiet"):
            report = examine(lab, attempt)
        emit(report)
    if not as_json:
        out.print()
        show_findings(report)
        _say_what_next(lab, resolve(workspace))
        out.print()
    raise typer.Exit(int(has_errors(report)))


def _say_what_next(lab: Lab, here: Workspace) -> None:
    if read_progress(here).status(lab.id) == "passed":
        next_command(f"lab solution {lab.id}", "compare your mend with ours")
    else:
        next_command(f"lab grade {lab.id}", "when you think it is mended")


def watch(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Grade a lab now and at every save, until it passes or you press Ctrl-C."""
    from labs.cli.show_grade import show_grade, stream
    from labs.grading import ForkServer
    from labs.learner.graded_attempt import grade_attempt
    from labs.learner.watch import saves

    lab, here = find(number), resolve(workspace)
    attempt = here.started_attempt(lab)
    with ForkServer() as server:
        for _ in saves(attempt, lab.editable):
            with stream(lab, quiet=False) as on_check:
                done, notice = grade_attempt(here, lab, on_check=on_check, server=server)
            if notice:
                err.print(f"[warn]lab:[/] {escape(notice)}", soft_wrap=True)
            show_grade(done, lab)
            if done.verdict == "passed":
                return
            out.print(f"  [quiet]waiting for you to save {escape(' or '.join(lab.editable))} · Ctrl-C ends[/]\n")

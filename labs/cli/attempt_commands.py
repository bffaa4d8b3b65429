"""Commands about one attempt: start, hint, diff, reset, solution."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape

from labs.cli.console import err, next_command, out, paragraph
from labs.cli.failures import RefusedError
from labs.cli.options import LabNumber, WorkspaceOption
from labs.cli.overview_commands import read_progress
from labs.cli.show_diff import show_diff
from labs.grading.catalog import Lab, find
from labs.learner import progress
from labs.learner.diff import diff_from_starter
from labs.learner.hints import RUNGS, hints
from labs.learner.lesson import lesson_address
from labs.learner.workspace import Workspace, resolve


def start(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Copy a lab's files into your workspace and say what to do with them."""
    lab, here = find(number), resolve(workspace)
    copied = start_attempt(here, lab)
    facts = f"{'★' * lab.difficulty}{'☆' * (3 - lab.difficulty)} · {lab.loudness} · {lab.minutes} min"
    out.print(f"\n  [strong]{lab.id} · {escape(lab.title)}[/]  [quiet]{facts}[/]")
    out.print()
    paragraph(lab.symptom)
    out.print()
    if not copied:
        out.print("  [quiet]You had started it; nothing was overwritten.[/]")
    for name in lab.editable:
        out.print(f"  [quiet]edit[/]    {escape(str(here.attempt(lab) / name))}", soft_wrap=True)
    out.print(f"  [quiet]lesson[/]  {lesson_address(lab)}", soft_wrap=True)
    out.print()
    next_command(f"lab run {lab.id}", "see the symptom")
    next_command(f"lab grade {lab.id}", "when you think it is mended")
    out.print()


def hint(
    number: LabNumber,
    rung: Annotated[
        int | None, typer.Option(min=1, max=RUNGS, help="Show this rung again.", show_default=False)
    ] = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Show the next hint: where to look, what to measure, what is wrong."""
    from rich.markdown import Markdown
    from rich.padding import Padding

    lab, here = find(number), resolve(workspace)
    here.started_attempt(lab)
    ladder = hints(lab)
    known = read_progress(here).labs.get(lab.id)
    read_so_far = known.hints if known else 0
    step = rung or min(read_so_far + 1, RUNGS)
    if step > read_so_far + 1:
        raise RefusedError(f"Hint {step} comes after hint {read_so_far + 1}. `lab hint {lab.id}` shows the next one.")
    record(here, progress.hinted(lab.id, step, datetime.now(UTC)))
    shown = ladder[step - 1]
    out.print(f"\n  [quiet]lab {lab.id} · hint {step} of {RUNGS}[/]  [strong]{escape(shown.title)}[/]\n")
    out.print(Padding(Markdown(shown.text), (0, 2)))
    out.print()
    if step < RUNGS:
        next_command(f"lab hint {lab.id}", "if that was not enough")
    else:
        next_command(f"lab solution {lab.id} --give-up", "the last resort")
    out.print()


def diff(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Show what you have changed since `lab start`."""
    lab, here = find(number), resolve(workspace)
    changes = diff_from_starter(lab, here.started_attempt(lab), "yours", starter=here.starter(lab))
    if not changes:
        out.print(f"\n  [quiet]Nothing is changed in lab {lab.id} yet.[/]\n")
        return
    out.print()
    show_diff(changes)
    out.print()


def reset(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Begin a lab again; your attempt is kept."""
    lab, here = find(number), resolve(workspace)
    kept = here.reset(lab)
    out.print(f"\n  Lab {lab.id} is as shipped again. Your attempt is kept:\n  {escape(str(kept))}\n", soft_wrap=True)
    next_command(f"lab run {lab.id}", "see the symptom")
    out.print()


def solution(
    number: LabNumber,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Show it before a pass; the lab then counts as given up.")
    ] = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Show the solution and why it is right: after a pass, or with --give-up."""
    from rich.markdown import Markdown
    from rich.padding import Padding

    lab, here = find(number), resolve(workspace)
    status = read_progress(here).status(lab.id)
    if status not in ("passed", "given_up"):
        if not give_up:
            raise RefusedError(
                f"Lab {lab.id} is not passed yet. `lab hint {lab.id}` helps; "
                f"`lab solution {lab.id} --give-up` shows the solution and counts as given up."
            )
        record(here, progress.gave_up(lab.id, datetime.now(UTC)))
    out.print(f"\n  [strong]{lab.id} · {escape(lab.title)}[/]  [quiet]the shipped solution[/]\n")
    show_diff(diff_from_starter(lab, lab.solution, "solution"))
    why = lab.solution / "why.md"
    if why.is_file():
        out.print()
        out.print(Padding(Markdown(why.read_text(encoding="utf-8")), (0, 2)))
    out.print()


def start_attempt(workspace: Workspace, lab: Lab) -> bool:
    """Start a lab and remember when; True if files were copied."""
    copied = workspace.start(lab)
    record(workspace, progress.started(lab.id, datetime.now(UTC)))
    return copied


def record(workspace: Workspace, change: progress.Change) -> None:
    """Write a change of progress; a notice about the file goes to stderr."""
    loaded = progress.record(workspace, change)
    if loaded.notice:
        err.print(f"[warn]lab:[/] {escape(loaded.notice)}", soft_wrap=True)

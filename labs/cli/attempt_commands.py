"""Commands about one attempt: start, hint, diff, reset, solution."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.markup import escape
from rich.text import Text

from labs.cli.console import next_command, notice, out, paragraph, path_markup, print_hanging, print_markdown
from labs.cli.failures import RefusedError
from labs.cli.options import LabNumber, WorkspaceOption
from labs.cli.overview_commands import read_progress
from labs.cli.show_diff import show_diff
from labs.cli.which_lab import is_capstone, which_lab
from labs.grading.answers import ANSWERS, correct_answers
from labs.grading.catalog import Lab
from labs.grading.submission_text import clean
from labs.learner import progress
from labs.learner.checks_hash import checks_hash
from labs.learner.diff import diff_from_starter, diff_of_answers
from labs.learner.handout import BRIEF, HANDOUT, POST_MORTEM, text_to_read
from labs.learner.hints import HINTS, hints
from labs.learner.lesson import lesson_place
from labs.learner.pack import has_solutions, require_solutions
from labs.learner.workspace import Workspace, resolve
from labs.locale import message, translated


def start(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Copy a lab's files into your workspace and show what to do next."""
    lab, here = which_lab(number, workspace), resolve(workspace)
    show_started(here, lab, start_attempt(here, lab))


def show_started(here: Workspace, lab: Lab, copied: bool) -> None:
    """What a lab is about, where its files are and what to do next."""
    minutes = message("{minutes} min", minutes=lab.minutes)
    facts = f"{'★' * lab.difficulty}{'☆' * (3 - lab.difficulty)} · {translated(lab.loudness)} · {minutes}"
    out.print(f"\n  [strong]{lab.id} · {escape(translated(lab.title))}[/]  [quiet]{facts}[/]")
    out.print()
    paragraph(lab.symptom)
    out.print()
    if not copied:
        paragraph("Already started: nothing was overwritten.", "quiet")
    for name in lab.editable:
        _labelled("edit", path_markup(here.attempt(lab) / name))
    if lab.questions:
        _labelled("answer", path_markup(here.attempt(lab) / ANSWERS))
    brief = text_to_read(lab.folder / HANDOUT, BRIEF)
    if brief is not None:
        _labelled("read", path_markup(here.attempt(lab) / brief.name))
    lesson = lesson_place(lab)
    if lesson is not None:
        _labelled("lesson", escape(clean(lesson)))
    out.print()
    next_command(f"lab run {lab.id}", "see the symptom")
    next_command(f"lab grade {lab.id}", "when you think it is fixed")
    out.print()


def _labelled(label: str, markup: str) -> None:
    shown = translated(label)
    out.print(f"  [quiet]{shown}[/]{' ' * (8 - cell_len(shown))}{markup}", soft_wrap=True)


def hint(
    number: LabNumber,
    level: Annotated[
        int | None, typer.Option(min=1, max=HINTS, help="Show hint 1, 2 or 3 again.", show_default=False)
    ] = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Show the next hint: where to look, what to measure, what is wrong."""
    lab, here = which_lab(number, workspace), resolve(workspace)
    here.started_attempt(lab)
    all_hints = hints(lab)
    known = read_progress(here).labs.get(lab.id)
    read_so_far = known.hints if known else 0
    wanted = level or min(read_so_far + 1, HINTS)
    if wanted > read_so_far + 1:
        raise RefusedError(f"Hint {wanted} comes after hint {read_so_far + 1}. `lab hint {lab.id}` shows the next one.")
    record(here, progress.hinted(lab.id, wanted, datetime.now(UTC)))
    shown = all_hints[wanted - 1]
    place = message("lab {id} · hint {wanted} of {hints}", id=lab.id, wanted=wanted, hints=HINTS)
    out.print(f"\n  [quiet]{place}[/]  [strong]{escape(translated(shown.title))}[/]\n")
    print_markdown(_by_paragraph(shown.text))
    out.print()
    if wanted < HINTS:
        next_command(f"lab hint {lab.id}", "if this is not enough")
    elif has_solutions():
        next_command(f"lab solution {lab.id} --give-up", "the last resort")
    out.print()


def diff(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Show what you have changed since `lab start`."""
    lab, here = which_lab(number, workspace), resolve(workspace)
    attempt, starter = here.started_attempt(lab), here.starter(lab)
    changes = diff_from_starter(lab, attempt, "yours", starter=starter)
    changes += diff_of_answers(lab, attempt, "yours", starter=starter)
    if not changes:
        out.print(f"\n  [quiet]{message('You have not changed lab {id} yet.', id=lab.id)}[/]\n")
        return
    out.print()
    show_diff(changes)
    out.print()


def reset(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Restore a lab's original files. Your attempt is kept."""
    lab, here = which_lab(number, workspace), resolve(workspace)
    kept = here.reset(lab)
    out.print(
        f"\n  {message('Lab {id} has its original files again. Your attempt is kept in', id=lab.id)}\n"
        f"  {path_markup(kept)}\n",
        soft_wrap=True,
    )
    next_command(f"lab run {lab.id}", "see the symptom")
    out.print()


def solution(
    number: LabNumber,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Show it without a pass. The lab then counts as given up.")
    ] = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Show the solution and why it is correct, after a pass or with --give-up."""
    lab, here = which_lab(number, workspace), resolve(workspace)
    require_solutions("solutions")
    status = read_progress(here).status(lab.id)
    if status not in ("passed", "given_up"):
        if not give_up:
            raise RefusedError(
                f"You have not passed lab {lab.id} yet. `lab hint {lab.id}` shows a hint; "
                f"`lab solution {lab.id} --give-up` shows the solution, and the lab then counts as given up."
            )
        record(here, progress.gave_up(lab.id, datetime.now(UTC)))
    out.print(
        f"\n  [strong]{lab.id} · {escape(translated(lab.title))}[/]  [quiet]{translated('the shipped solution')}[/]\n"
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder, why = _solution(lab, Path(scratch))
        show_diff(diff_from_starter(lab, folder, "solution"))
    _show_answers(lab)
    if why:
        out.print()
        print_markdown(_by_paragraph(why))
    out.print()


def _solution(lab: Lab, scratch: Path) -> tuple[Path, str]:
    """The folder of the solution and why it is correct; those of a mystery are composed into a scratch folder."""
    if lab.id.startswith("mystery"):
        from labs.mystery.mystery_lab import MysteryLab, solution_of

        assert isinstance(lab, MysteryLab)
        return scratch, solution_of(lab, scratch)
    why = text_to_read(lab.solution, POST_MORTEM if is_capstone(lab) else "why.md")
    return lab.solution, why.read_text(encoding="utf-8").strip() if why is not None else ""


def _by_paragraph(text: str) -> str:
    """A translated text; the hints of a mystery are composed of sentences, and each is translated by itself."""
    whole = translated(text)
    return whole if whole != text else "\n\n".join(translated(one) for one in text.split("\n\n"))


def _show_answers(lab: Lab) -> None:
    correct = correct_answers(lab) if lab.questions else {}
    for question in lab.questions:
        out.print()
        paragraph(question.text)
        print_hanging("    ", Text(f"{question.id} = {correct[question.id].value!r}", style="good"))


def start_attempt(workspace: Workspace, lab: Lab) -> bool:
    """Start a lab and record the time; True if files were copied."""
    read_progress(workspace)  # if the start cannot be recorded, nothing is copied
    copied = workspace.start(lab)
    record(workspace, progress.started(lab.id, datetime.now(UTC), checks_hash(lab)))
    return copied


def record(workspace: Workspace, change: progress.Change) -> None:
    """Record a change of progress. A notice about the file goes to stderr."""
    loaded = progress.record(workspace, change)
    if loaded.notice:
        notice(loaded.notice)

"""`lab upgrade`: brings a workspace to the labs that are installed now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from labs.cli.console import err, next_command, out, path_markup, print_hanging
from labs.cli.one_document import one_document
from labs.cli.options import JsonOption, WorkspaceOption
from labs.cli.which_lab import shipped_capstones
from labs.grading.catalog import Lab, all_labs
from labs.learner.workspace import resolve
from labs.locale import message, translated

if TYPE_CHECKING:
    from labs.grading.grades import Grade
    from labs.learner.upgrade import Step, Upgraded

SENTENCES = {
    "new": ("+", "good", "new lab"),
    "added": ("+", "good", "{file} was added"),
    "replaced": ("✓", "good", "{file} is the new starter; you had not changed the old one"),
    "beside": ("·", "warn", "you have changed {file}, so it was kept; the new starter is new_starter/{file}"),
    "checks": ("·", "quiet", "its other files or its checks changed"),
    "passes": ("✓", "good", "your fix passes the new checks"),
    "again": ("✗", "bad", "open again: your fix does not pass the new checks. {why}"),
    "unsure": ("·", "quiet", "stays passed: the file that passed was not kept, and the current one fails. {why}"),
    "not_graded": ("!", "warn", "stays as it was: it could not be graded, and the next upgrade tries again. {why}"),
}


def upgrade(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Bring your workspace up to date with the installed labs. Your edits stay as they are."""
    from labs.learner.upgrade import Upgrade

    here, labs = resolve(workspace), (*all_labs(), *shipped_capstones())
    run = Upgrade(here, _graded)
    done: list[Upgraded] = []
    with one_document(as_json) as emit:
        if not as_json:
            out.print()
        if here.exists:
            for lab in labs:
                with err.status(f"[quiet]{message('lab {id}', id=lab.id)}[/]", spinner_style="quiet"):
                    done.append(run.lab(lab))
                if not as_json:
                    _show(done[-1])
            run.finish(labs)
        changed = [one for one in done if one.steps]
        backup = run.backup if run.backup.is_dir() else None
        emit({"schema": 1, "labs": [one.to_json() for one in changed], "backup": str(backup) if backup else None})
    if not as_json:
        _show_end(changed, backup)


def _graded(lab: Lab, folder: Path) -> Grade:
    from labs.grading import Grade, MissingExtraError, grade

    try:
        return grade(lab, folder)
    except MissingExtraError as error:
        return Grade(lab.id, lab.slug, "error", str(error), 0.0, 0)


def _show(one: Upgraded) -> None:
    for step in one.steps:
        sign, style, _ = SENTENCES[step.action]
        print_hanging(Text.assemble("  ", (sign, style), f" {one.lab.id}  "), Text(_sentence(step)))


def _sentence(step: Step) -> str:
    why = translated(step.why.partition("\n")[0])
    return message(SENTENCES[step.action][2], file=step.file, why=why).rstrip()


def _show_end(changed: list[Upgraded], backup: Path | None) -> None:
    if not changed:
        out.print(f"  [quiet]{translated('Nothing to upgrade.')}[/]\n")
        return
    out.print()
    if backup is not None:
        out.print(f"  [quiet]{translated('The replaced files are in')}[/] {path_markup(backup)}", soft_wrap=True)
    again = [one.lab.id for one in changed if any(step.action == "again" for step in one.steps)]
    if again:
        next_command(f"lab grade {again[0]}", "see what it requires now")
    out.print()

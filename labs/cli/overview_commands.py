"""Commands about all labs and the workspace: list, next, progress, open, doctor, init."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from labs.cli.console import err, next_command, notice, out, path_markup
from labs.cli.failures import RefusedError
from labs.cli.one_document import one_document
from labs.cli.options import JsonOption, LabNumber, PathOption, WorkspaceOption
from labs.cli.show_list import list_document, show_list, show_path
from labs.cli.which_lab import begun_mysteries, shipped_capstones, which_lab
from labs.grading.catalog import all_labs
from labs.grading.submission_text import clean
from labs.learner import progress as learner_progress
from labs.learner.next_lab import next_lab
from labs.learner.paths import find_path
from labs.learner.workspace import Workspace, make_workspace, resolve
from labs.locale import message, translated


def list_labs(workspace: WorkspaceOption = None, as_json: JsonOption = False, path: PathOption = None) -> None:
    """Show every lab, what it is about and your status."""
    loaded = read_progress(resolve(workspace))
    chosen = find_path(path) if path is not None else None
    if as_json:
        with one_document(True) as emit:
            listed, capstones = (chosen.of(all_labs()), ()) if chosen else (all_labs(), shipped_capstones())
            emit(list_document(listed, loaded, path, capstones))
    elif chosen is not None and path is not None:
        show_path(path, chosen, all_labs(), loaded)
    else:
        show_list(all_labs(), loaded, shipped_capstones())


def next_one(workspace: WorkspaceOption = None, as_json: JsonOption = False, path: PathOption = None) -> None:
    """Suggest the next lab, from its prerequisites and from what was hard for you, and give the reason."""
    from labs.cli.show_next import next_document, show_next

    loaded = read_progress(resolve(workspace))
    chosen = find_path(path).of(all_labs()) if path is not None else None
    suggestion = next_lab(all_labs(), loaded, chosen)
    if as_json:
        with one_document(True) as emit:
            emit(next_document(suggestion, path))
    else:
        show_next(suggestion, loaded, path, chosen)


def progress(
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write your progress to a file, or to stdout with -.")
    ] = None,
    bring: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Merge an exported progress file into yours.")
    ] = None,
) -> None:
    """Show your level, times and achievements, or move them to another machine."""
    from labs.cli.show_progress import show_progress
    from labs.learner.export import export_progress, import_progress, progress_document

    here = resolve(workspace)
    if bring is not None:
        count = import_progress(here, bring)
        form = "Merged 1 lab from {file}." if count == 1 else "Merged {count} labs from {file}."
        err.print(f"  {message(form, count=count, file=path_markup(bring))}", soft_wrap=True)
    loaded = read_progress(here)
    if export is not None:
        export_progress(loaded, export)
    elif as_json:
        with one_document(True) as emit:
            emit(progress_document(loaded, all_labs(), begun_mysteries(loaded, here), shipped_capstones()))
    else:
        show_progress(all_labs(), loaded, (*shipped_capstones(), *begun_mysteries(loaded, here)))


def open_lesson(number: LabNumber) -> None:
    """Open a lab's lesson in the browser and print where it is."""
    import webbrowser

    from labs.learner.lesson import file_to_read, lesson_address, lesson_place

    lab = which_lab(number, None)
    place = lesson_place(lab)
    if place is None:
        raise RefusedError(f"Lab {lab.id} has no lesson in this pack.")
    on_the_site = place == lesson_address(lab)
    if on_the_site:
        out.print(f"  {place}", soft_wrap=True)
    if file_to_read(lab).is_file():
        style = "quiet" if on_the_site else "none"
        out.print(f"  [{style}]{path_markup(file_to_read(lab))}[/]", soft_wrap=True)
    if sys.stdout.isatty():
        webbrowser.open(place if on_the_site else file_to_read(lab).resolve().as_uri())


def doctor(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Check this machine, and explain what each missing feature means."""
    from labs.cli.show_doctor import show_doctor
    from labs.learner.doctor import examine

    conditions = examine(lambda: resolve(workspace))
    with one_document(as_json) as emit:
        emit({"schema": 1, "conditions": [condition.to_json() for condition in conditions]})
    if not as_json:
        show_doctor(conditions)
    raise typer.Exit(int(any(condition.state == "missing" for condition in conditions)))


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; . is the current one.")] = Path(
        "workspace"
    ),
) -> None:
    """Make a folder a workspace: labs that you start in it, or below it, are kept there."""
    from labs.learner.workspace import STATE

    made = make_workspace(folder)
    root = folder.resolve()
    if not (root / STATE).is_dir():
        raise RefusedError(f"{root} could not be made a workspace. Choose another folder.")
    told = translated("Created workspace") if made else translated("Already a workspace:")
    out.print(f"\n  {told} [strong]{path_markup(root)}[/]", soft_wrap=True)
    go_there = "" if root == Path.cwd() else f"cd {shlex.quote(clean(str(folder)))} && "
    next_command(f"{go_there}lab list", "choose a lab")
    out.print()


def read_progress(workspace: Workspace) -> learner_progress.Progress:
    """The progress of a workspace. A notice about the file goes to stderr."""
    loaded = learner_progress.read(workspace)
    if loaded.notice:
        notice(loaded.notice)
    return loaded.progress

"""Commands about the collection and the workspace as a whole: list, progress, open, doctor, init."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from labs.cli.console import err, next_command, out
from labs.cli.failures import RefusedError
from labs.cli.one_document import one_document
from labs.cli.options import JsonOption, LabNumber, WorkspaceOption
from labs.cli.show_list import list_document, show_list
from labs.grading.catalog import all_labs, find
from labs.learner import progress as learner_progress
from labs.learner.workspace import Workspace, make_workspace, resolve


def list_labs(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Show every lab, what it is about and where you are with it."""
    loaded = read_progress(resolve(workspace))
    if as_json:
        with one_document(True) as emit:
            emit(list_document(all_labs(), loaded))
    else:
        show_list(all_labs(), loaded)


def progress(
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write your progress to a file, - for stdout.")
    ] = None,
    bring: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Merge an exported progress into this.")
    ] = None,
) -> None:
    """Show your level, time and achievements; or take them to another machine."""
    from labs.cli.show_progress import show_progress
    from labs.learner.export import export_progress, import_progress, progress_document

    here = resolve(workspace)
    if bring is not None:
        count = import_progress(here, bring)
        err.print(f"  Merged {count} {'lab' if count == 1 else 'labs'} from {escape(str(bring))}.", soft_wrap=True)
    loaded = read_progress(here)
    if export is not None:
        export_progress(loaded, export)
    elif as_json:
        with one_document(True) as emit:
            emit(progress_document(loaded, all_labs()))
    else:
        show_progress(all_labs(), loaded)


def open_lesson(number: LabNumber) -> None:
    """Open a lab's lesson in the browser, and print its address."""
    import webbrowser

    from labs.learner.lesson import lesson_address, lesson_file

    lab = find(number)
    out.print(f"  {lesson_address(lab)}", soft_wrap=True)
    if lesson_file(lab).is_file():
        out.print(f"  [quiet]{escape(str(lesson_file(lab)))}[/]", soft_wrap=True)
    if sys.stdout.isatty():
        webbrowser.open(lesson_address(lab))


def doctor(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Check what this machine offers the lab, and say what each missing thing means."""
    from labs.cli.show_doctor import show_doctor
    from labs.learner.doctor import examine

    conditions = examine(lambda: resolve(workspace))
    with one_document(as_json) as emit:
        emit({"schema": 1, "conditions": [condition.to_json() for condition in conditions]})
    if not as_json:
        show_doctor(conditions)
    raise typer.Exit(int(any(condition.state == "missing" for condition in conditions)))


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; . for this one.")] = Path("workspace"),
) -> None:
    """Make a folder a workspace, so that labs started in it or below it are kept there."""
    from labs.learner.workspace import STATE

    made = make_workspace(folder)
    root = folder.resolve()
    if not (root / STATE).is_dir():
        raise RefusedError(f"{root} could not be made a workspace. Choose another folder.")
    out.print(f"\n  {'Made' if made else 'Already'} a workspace: [strong]{escape(str(root))}[/]", soft_wrap=True)
    next_command(f"{'' if root == Path.cwd() else f'cd {folder} && '}lab list", "choose a lab")
    out.print()


def read_progress(workspace: Workspace) -> learner_progress.Progress:
    """The progress of a workspace; a notice about the file goes to stderr."""
    loaded = learner_progress.read(workspace)
    if loaded.notice:
        err.print(f"[warn]lab:[/] {escape(loaded.notice)}", soft_wrap=True)
    return loaded.progress

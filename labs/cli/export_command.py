"""`lab export`: files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labs.cli.console import out, path_markup
from labs.cli.failures import RefusedError
from labs.locale import translated


def export(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder that you open in the editor.")] = Path(),
    vscode: Annotated[bool, typer.Option("--vscode", help="Tasks, settings and tests for VS Code.")] = False,
) -> None:
    """Write the files that an editor needs to grade a lab and to show its checks."""
    from labs.learner.pack import is_foreign
    from labs.learner.vscode import write_vscode

    if not vscode:
        raise RefusedError("Which editor? `lab export --vscode` writes the files for VS Code.")
    if is_foreign():
        raise RefusedError("The files for an editor serve the labs of vla-debug-lab, not those of a pack.")
    written = write_vscode(folder)
    for path in written:
        out.print(f"  [quiet]{translated('written')}[/] {path_markup(path)}", soft_wrap=True)
    if not written:
        out.print(f"  [quiet]{translated('Nothing changed.')}[/]")

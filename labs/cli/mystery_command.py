"""`lab mystery`: a generated lab, the same for everyone who asks with the same seed."""

from __future__ import annotations

from typing import Annotated

import typer

from labs.cli.attempt_commands import show_started, start_attempt
from labs.cli.console import err
from labs.cli.failures import RefusedError
from labs.cli.options import WorkspaceOption
from labs.grading.catalog import CHAPTERS
from labs.learner.workspace import resolve
from labs.locale import translated


def mystery(
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=10**12 - 1, metavar="N", help="The mystery's number. Default: today's date.", show_default=False
        ),
    ] = None,
    level: Annotated[
        int | None,
        typer.Option(
            min=1, max=3, help="1: loud, 2: silent, 3: two faults. Default: drawn from the seed.", show_default=False
        ),
    ] = None,
    chapter: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only faults of one chapter, such as loop.", show_default=False),
    ] = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Make a program with an unknown fault. Without a seed it is the mystery of the day (UTC)."""
    from labs.mystery.mystery_lab import begin, today
    from labs.mystery.plant import Key

    if chapter is not None and chapter not in CHAPTERS:
        raise RefusedError(f"There is no chapter {chapter}. The chapters are: {', '.join(CHAPTERS)}.")
    here = resolve(workspace)
    with err.status(f"[quiet]{translated('composing a program and checking its fault …')}[/]", spinner_style="quiet"):
        lab = begin(Key(today() if seed is None else seed, level, chapter), here)
    show_started(here, lab, start_attempt(here, lab))

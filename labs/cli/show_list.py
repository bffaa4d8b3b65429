"""The output of `lab list`, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from labs.cli.console import STATUS_MARKS, next_command, out
from labs.grading.catalog import Lab
from labs.learner.pack import current_pack
from labs.learner.progress import Progress
from labs.learner.status import learner_status
from labs.locale import message, translated

BESIDE = 36
"""Columns for number, stars, loudness and minutes beside the title."""
NARROW = 60
"""Below this width those columns are left out."""


def list_document(labs: Sequence[Lab], progress: Progress) -> dict[str, Any]:
    """The JSON document of `lab list --json`."""
    keys = ("id", "slug", "title", "chapter", "difficulty", "minutes", "loudness", "rules")
    return {
        "schema": 1,
        "labs": [{**{key: getattr(lab, key) for key in keys}, "status": progress.status(lab.id)} for lab in labs],
    }


def show_list(labs: Sequence[Lab], progress: Progress) -> None:
    """One line per lab, by chapter, and what to do next."""
    status = learner_status(progress, labs)
    passed = sum(progress.status(lab.id) == "passed" for lab in labs)
    pack = current_pack()
    heading = f"{pack.name} {pack.version}" if pack is not None else "VLA Debugging Lab"
    counted = message("{passed} of {labs} passed", passed=passed, labs=len(labs))
    out.print()
    out.print(f"  [strong]{heading}[/]  [quiet]{counted}[/]")
    level = message("level {level}, {name}", level=status.level, name=translated(status.level_name))
    out.print(f"  [quiet]{level} · {status.xp} XP[/]")
    title_width = max((cell_len(translated(lab.title)) for lab in labs), default=0)
    for chapter, members in groupby(labs, key=lambda lab: lab.chapter):
        out.print(f"\n  [quiet]{translated(chapter)}[/]")
        out.print(_table(list(members), progress, title_width))
    out.print(f"\n  [quiet]{_legend()}[/]")
    upcoming = _next(labs, progress)
    if upcoming is not None:
        verb, why = ("grade", "in progress") if progress.status(upcoming.id) == "started" else ("start", upcoming.title)
        next_command(f"lab {verb} {upcoming.id}", why)
    out.print()


def _table(labs: Sequence[Lab], progress: Progress, title_width: int) -> Table:
    wide = out.width >= NARROW
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True, expand=False)
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    # One width for every chapter, so that the columns line up.
    table.add_column(width=min(title_width, out.width - BESIDE) if wide else None)
    for lab in labs:
        sign, style = STATUS_MARKS[progress.status(lab.id)]
        title = Text(translated(lab.title), style="quiet" if progress.status(lab.id) == "passed" else "")
        cells: list[Text | str] = [Text(" "), Text(f"{sign} {lab.id}", style=style), title]
        if wide:
            cells += [
                Text("★" * lab.difficulty + "☆" * (3 - lab.difficulty), style="quiet", no_wrap=True),
                Text(translated(lab.loudness), style="quiet", no_wrap=True),
                Text(message("{minutes} min", minutes=f"{lab.minutes:>3}"), style="quiet", no_wrap=True),
            ]
        table.add_row(*cells)
    return table


def _legend() -> str:
    return "   ".join(
        f"{STATUS_MARKS[key][0]} {translated(key.replace('_', ' '))}"
        for key in ("new", "started", "passed", "given_up")
    )


def _next(labs: Sequence[Lab], progress: Progress) -> Lab | None:
    """The first lab in progress, else the first new one, in the order of the curriculum."""
    for status in ("started", "new"):
        for lab in labs:
            if progress.status(lab.id) == status:
                return lab
    return None

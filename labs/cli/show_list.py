"""The output of `lab list`, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from labs.cli.console import STATUS_MARKS, next_command, out, paragraph, print_hanging, with_pack
from labs.grading.catalog import Lab
from labs.learner.next_lab import Suggestion, next_lab
from labs.learner.pack import current_pack
from labs.learner.paths import LearningPath, all_paths
from labs.learner.progress import Progress
from labs.learner.status import learner_status
from labs.locale import message, translated

BESIDE = 36
"""Columns for number, stars, loudness and minutes beside the title."""
NARROW = 60
"""Below this width those columns are left out."""


def list_document(
    labs: Sequence[Lab], progress: Progress, path: str | None = None, capstones: Sequence[Lab] = ()
) -> dict[str, Any]:
    """The JSON document of `lab list --json`; of the labs of a path, with the path's name and without capstones."""
    keys = ("id", "slug", "title", "chapter", "difficulty", "minutes", "loudness", "prerequisites", "rules")
    return {
        "schema": 1,
        **({"path": path} if path is not None else {}),
        "labs": [{**{key: getattr(lab, key) for key in keys}, "status": progress.status(lab.id)} for lab in labs],
        **({"capstones": [_capstone(lab, progress) for lab in capstones]} if path is None else {}),
    }


def _capstone(lab: Lab, progress: Progress) -> dict[str, Any]:
    keys = ("id", "slug", "title", "difficulty", "minutes", "loudness")
    return {**{key: getattr(lab, key) for key in keys}, "status": progress.status(lab.id)}


def show_list(labs: Sequence[Lab], progress: Progress, capstones: Sequence[Lab] = ()) -> None:
    """One line per lab, by chapter, then the capstones, and what to do next."""
    status = learner_status(progress, labs, capstones)
    passed = sum(progress.status(lab.id) == "passed" for lab in labs)
    pack = current_pack()
    heading = f"{pack.name} {pack.version}" if pack is not None else "VLA Debugging Lab"
    counted = message("{passed} of {labs} passed", passed=passed, labs=len(labs))
    out.print()
    out.print(f"  [strong]{heading}[/]  [quiet]{counted}[/]")
    level = message("level {level}, {name}", level=status.level, name=translated(status.level_name))
    out.print(f"  [quiet]{level} · {status.xp} XP[/]")
    title_width = max((cell_len(translated(lab.title)) for lab in (*labs, *capstones)), default=0)
    for chapter, members in groupby(labs, key=lambda lab: lab.chapter):
        out.print(f"\n  [quiet]{translated(chapter)}[/]")
        out.print(_table(list(members), progress, title_width))
    if capstones:
        out.print(f"\n  [quiet]{translated('capstones: two or three faults in one project, and no lesson')}[/]")
        out.print(_table(capstones, progress, title_width))
    out.print(f"\n  [quiet]{_legend()}[/]")
    names = ", ".join(all_paths())
    if names:
        print_hanging(
            "  ", Text(with_pack(message("`lab list --path NAME` shows a path: {names}", names=names)), "quiet")
        )
    _show_next(next_lab(labs, progress))


def show_path(name: str, path: LearningPath, labs: Sequence[Lab], progress: Progress) -> None:
    """The labs of a path in its order, and what to do next."""
    own = path.of(labs)
    passed = sum(progress.status(lab.id) == "passed" for lab in own)
    hours = f"{sum(lab.minutes for lab in own) / 60:.0f}"
    counted = message("{passed} of {labs} passed, {hours} hours", passed=passed, labs=len(own), hours=hours)
    out.print(f"\n  [strong]{name}[/]  [quiet]{counted}[/]")
    paragraph(path.title)
    paragraph(path.about, "quiet")
    out.print()
    out.print(_table(own, progress, max((cell_len(translated(lab.title)) for lab in own), default=0)))
    out.print(f"\n  [quiet]{_legend()}[/]")
    _show_next(next_lab(labs, progress, own))


def _show_next(suggestion: Suggestion | None) -> None:
    if suggestion is not None:
        next_command(f"lab {suggestion.command} {suggestion.lab.id}", suggestion.why)
    out.print()


def _table(labs: Sequence[Lab], progress: Progress, title_width: int) -> Table:
    wide = out.width >= NARROW
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True, expand=False)
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    # One width for every chapter, so that the columns line up.
    table.add_column(width=min(title_width, out.width - BESIDE) if wide else None)
    if wide:
        table.add_column()
        table.add_column(min_width=max(cell_len(translated(word)) for word in ("silent", "loud")))
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

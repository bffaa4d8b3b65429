"""The text output of `lab progress`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from labs.cli.console import STATUS_MARKS, next_command, out
from labs.grading.catalog import Lab
from labs.learner.progress import LabProgress, Progress
from labs.learner.status import LearnerStatus, learner_status, xp_for
from labs.locale import message, translated

BAR_WIDTH = 24
_TITLE = 1
"""The column that gives way to the others."""
_WIDEST_ID = 12
_ROOM_FOR_ALL = 60
"""Columns of a terminal on which all numbers fit beside a title."""


def show_progress(labs: Sequence[Lab], progress: Progress, mysteries: Sequence[Lab] = ()) -> None:
    """The level, one line per started lab, capstone and mystery, and the achievements."""
    now = learner_status(progress, labs, mysteries)
    out.print()
    level = message("level {level}, {name}", level=now.level, name=translated(now.level_name))
    out.print(f"  [strong]{level}[/]  {_bar(now)}  [quiet]{_ahead(now)}[/]")
    touched = [lab for lab in (*labs, *mysteries) if lab.id in progress.labs]
    if not touched:
        out.print(f"\n  [quiet]{translated('No lab started yet.')}[/]")
        next_command("lab list", "choose one")
        out.print()
        return
    out.print()
    out.print(_table(touched, progress))
    if now.achievements:
        out.print()
        for achievement in now.achievements:
            out.print(
                f"  [warn]◆[/] [strong]{translated(achievement.name)}[/]  [quiet]{translated(achievement.how)}[/]"
            )
    out.print()


def _table(touched: Sequence[Lab], progress: Progress) -> Table:
    """A line for each lab. On a narrow terminal the title is cut, and the numbers that matter least are left out."""
    headings = [translated(heading) for heading in ("", "lab", "grades", "hints", "time", "XP")]
    rows = [_row(lab, progress.labs[lab.id]) for lab in touched]
    kept = [0, 1, 3, 5] if out.width < _ROOM_FOR_ALL else range(len(headings))
    table = Table(box=None, padding=(0, 1), header_style="quiet")
    for number in kept:
        is_title = number == _TITLE
        widest = max(cell_len(headings[number]), *(row[number].cell_len for row in rows))
        table.add_column(
            headings[number],
            justify="left" if number <= _TITLE else "right",
            no_wrap=not is_title,  # only such a column is made narrower; its texts are one line themselves
            overflow="ellipsis",
            min_width=None if is_title else min(widest, _WIDEST_ID),
        )
    for row in rows:
        table.add_row(*(row[number] for number in kept))
    return table


def duration(seconds: float) -> str:
    """Seconds in a suitable unit."""
    if seconds < 90:
        return message("{seconds} s", seconds=f"{seconds:.0f}")
    if seconds < 90 * 60:
        return message("{minutes} min", minutes=f"{seconds / 60:.0f}")
    if seconds < 48 * 3600:
        return message("{hours} h", hours=f"{seconds / 3600:.0f}")
    return message("{days} days", days=f"{seconds / 86_400:.0f}")


def _row(lab: Lab, done: LabProgress) -> list[Text]:
    sign, style = STATUS_MARKS[done.status]
    took = duration(done.seconds_to_fix) if done.seconds_to_fix is not None else "–"
    earned = xp_for(lab, done)
    return [
        Text(f" {sign} {lab.id}", style=style),
        Text(translated(lab.title), no_wrap=True, overflow="ellipsis"),  # one line per lab on a narrow terminal too
        Text(str(done.grades)),
        Text(str(done.hints + done.diagnosed)),
        Text(took),
        Text(str(earned) if earned else "–"),
    ]


def _bar(now: LearnerStatus) -> str:
    share = 1.0 if now.next_level_at is None else (now.xp - now.level_floor) / (now.next_level_at - now.level_floor)
    full = int(share * BAR_WIDTH)
    return f"[good]{'━' * full}[/][quiet]{'━' * (BAR_WIDTH - full)}[/]"


def _ahead(now: LearnerStatus) -> str:
    if now.next_level_at is None:
        return f"{now.xp} XP"
    return message("{xp} of {next} XP", xp=now.xp, next=now.next_level_at)

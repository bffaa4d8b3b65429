"""The output of `lab next`, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from labs.cli.console import next_command, out, paragraph
from labs.grading.catalog import Lab
from labs.learner.next_lab import Suggestion
from labs.learner.progress import Progress
from labs.locale import message, translated


def next_document(suggestion: Suggestion | None, path: str | None) -> dict[str, Any]:
    """The JSON document of `lab next --json`; `lab` is null if every lab is done."""
    lab = suggestion.lab if suggestion is not None else None
    return {
        "schema": 1,
        "path": path,
        "lab": {"id": lab.id, "slug": lab.slug, "title": lab.title, "minutes": lab.minutes} if lab else None,
        "command": f"lab {suggestion.command} {suggestion.lab.id}" if suggestion is not None else None,
        "why": suggestion.why if suggestion is not None else None,
    }


def show_next(
    suggestion: Suggestion | None, progress: Progress, path: str | None = None, labs: Sequence[Lab] | None = None
) -> None:
    """The lab, its symptom, and the command to go on with. `labs`: those of the path."""
    out.print()
    if path is not None and labs is not None:
        passed = sum(progress.status(lab.id) == "passed" for lab in labs)
        out.print(f"  [quiet]{path} · {message('{passed} of {labs} passed', passed=passed, labs=len(labs))}[/]")
    if suggestion is None:
        paragraph("Every lab is done." if path is None else "Every lab of this path is done.")
        next_command("lab progress", "see your times")
        out.print()
        return
    lab = suggestion.lab
    minutes = message("{minutes} min", minutes=lab.minutes)
    facts = f"{'★' * lab.difficulty}{'☆' * (3 - lab.difficulty)} · {translated(lab.loudness)} · {minutes}"
    out.print(f"  [strong]{lab.id} · {escape(translated(lab.title))}[/]  [quiet]{facts}[/]\n")
    paragraph(lab.symptom)
    out.print()
    next_command(f"lab {suggestion.command} {lab.id}", suggestion.why)
    out.print()

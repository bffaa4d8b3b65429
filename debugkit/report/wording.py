"""How parts of a report are worded: the verdict, a place, source lines, a value."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Literal

from debugkit.finding import Finding, Location, Severity
from debugkit.report.data import ReportData


def short_path(file: str) -> str:
    """The path from the working folder where the file is inside it, else as it is."""
    path = Path(file)
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else file


def place(location: Location) -> str:
    """`policy.py:41 · vision.encoder · step 12`: what is known, most exact first; empty if nothing is."""
    parts = []
    if location.file is not None:
        parts.append(f"{short_path(location.file)}:{location.line}")
    if location.parameter:
        parts.append(location.parameter)
    elif location.module is not None:
        parts.append(location.module or "(the model itself)")
    elif location.input is not None:
        parts.append(f"batch entry {location.input}" if location.input else "the batch")
    if location.step is not None:
        parts.append(f"step {location.step}")
    return " · ".join(parts)


def source_lines(location: Location, around: int = 1) -> list[tuple[int, str]]:
    """The line of a finding and its neighbours, numbered, without their common indent; empty if it cannot be read."""
    if location.file is None or location.line is None:
        return []
    numbers = range(max(1, location.line - around), location.line + around + 1)
    lines = [(number, linecache.getline(location.file, number).rstrip("\n")) for number in numbers]
    if not any(number == location.line and text.strip() for number, text in lines):
        return []
    kept = [(number, text.expandtabs(4)) for number, text in lines if text or number == location.line]
    indent = min(len(text) - len(text.lstrip()) for _, text in kept if text.strip())
    return [(number, text[indent:]) for number, text in kept]


def plural(count: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def evidence_shown(finding: Finding) -> list[tuple[str, object]]:
    """The evidence without what is empty."""
    return [(key, value) for key, value in finding.evidence.items() if value not in (None, "", [], (), {})]


def evidence_text(value: object) -> str:
    """The short form for display: a number to three digits, a list to its first four items."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        shown = ", ".join(evidence_text(item) for item in value[:4])
        return f"[{shown}{', …' if len(value) > 4 else ''}]"
    return str(value)


_STARTED_PROCESSES = "The script started "
"""How the only reason begins that says why a whole script was not examined."""


def verdict(report: ReportData) -> tuple[str, Literal["good", "fair", "bad"]]:
    """The whole report in one sentence, and how it is to be shown. A step that failed is never without findings."""
    counts = [
        plural(sum(finding.severity is severity for finding in report.causes), str(severity))
        for severity in Severity
        if any(finding.severity is severity for finding in report.causes)
    ]
    examined = f"{plural(len(report.examined), 'rule')} examined"
    if report.failure is not None:
        few = f"only {examined}" if report.examined else "no rule was examined"
        text = f"Failed{', with ' if counts else ''}{', '.join(counts)}; {few}"
    elif counts:
        text = f"Found {', '.join(counts)}; {examined}"
    else:
        text = f"No findings; {examined}" if report.examined else "No rule was examined"
    known = f", {plural(len(report.known), 'finding')} known from the baseline" if report.known else ""
    bad = bool(report.errors) or report.failure is not None
    started = {entry.why for entry in report.not_examined if entry.why.startswith(_STARTED_PROCESSES)}
    why = "".join(f" {reason}" for reason in started if not report.examined)
    return f"{text}{known}.{why}", "bad" if bad else "good" if report.ok and report.examined else "fair"

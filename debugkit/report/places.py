"""How a place is written for a person: a short path, the module, the lines around it."""

from __future__ import annotations

import linecache
from pathlib import Path

from debugkit.finding import Location


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
    if location.step is not None:
        parts.append(f"step {location.step}")
    return " · ".join(parts)


def source_lines(location: Location, around: int = 1) -> list[tuple[int, str]]:
    """The line of a finding and its neighbours, numbered; empty where the file cannot be read."""
    if location.file is None or location.line is None:
        return []
    numbers = range(max(1, location.line - around), location.line + around + 1)
    lines = [(number, linecache.getline(location.file, number).rstrip("\n")) for number in numbers]
    if not any(number == location.line and text.strip() for number, text in lines):
        return []
    return [(number, text) for number, text in lines if text or number == location.line]


def plural(count: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def evidence_text(value: object) -> str:
    """A number to three digits, a list of at most four; what a person reads, not what a machine does."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        shown = ", ".join(evidence_text(item) for item in value[:4])
        return f"[{shown}{', …' if len(value) > 4 else ''}]"
    return str(value)

"""The three hints of a lab's `hints.md`: where to look, what to measure, what is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from labs.grading.catalog import Lab

HINTS = 3
_HEADING = re.compile(r"^## (\d+)\s*(.*)$", re.MULTILINE)


class HintsError(Exception):
    """A lab's hints are not three numbered sections; the message says what was found."""


@dataclass(frozen=True)
class Hint:
    """One hint. Level 1 says the least."""

    level: int
    title: str
    text: str


def hints(lab: Lab) -> tuple[Hint, Hint, Hint]:
    """The lab's three hints, in order. Raises HintsError."""
    path = lab.folder / "hints.md"
    if not path.is_file():
        raise HintsError(f"{path} is missing: every lab has three hints.")
    return parse(path.read_text(encoding="utf-8"), str(path))


def parse(markdown: str, where: str) -> tuple[Hint, Hint, Hint]:
    """Split at `## 1`, `## 2`, `## 3`. Raises HintsError if they are not exactly these, or one is empty."""
    pieces = _HEADING.split(markdown)[1:]
    found = [
        Hint(int(level), title.strip(), text.strip()) for level, title, text in zip(*[iter(pieces)] * 3, strict=True)
    ]
    if [hint.level for hint in found] != [1, 2, 3]:
        numbers = ", ".join(str(hint.level) for hint in found) or "none"
        raise HintsError(f"{where}: the headings must be `## 1`, `## 2` and `## 3`, in this order; found: {numbers}.")
    for hint in found:
        if not hint.text:
            raise HintsError(f"{where}: hint {hint.level} has no text below its heading.")
    first, second, third = found
    return first, second, third

"""An edit: one change of one file, as text replaced between two byte offsets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """Replaces the bytes `start:end` of a file, and says what changed.

    `scope` is the dotted name of the function or class around it. `statement` is the statement that is changed,
    `before` and `after` the part of it that differs, all three in a form that formatting does not alter: they make
    the mutant's id.
    """

    start: int
    end: int
    text: str
    line: int
    scope: str
    statement: str
    before: str
    after: str
    summary: str

    def apply(self, source: str) -> str:
        """The file's text with this change and no other."""
        raw = source.encode()
        return (raw[: self.start] + self.text.encode() + raw[self.end :]).decode()


def summarise(before: str, after: str) -> str:
    """`before → after` on one short line."""
    return f"{_short(before)} → {_short(after)}"


_LONGEST = 70


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"

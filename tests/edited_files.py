"""Change a file of a temporary copy in a test."""

from __future__ import annotations

from pathlib import Path


def rewrite(path: Path, before: str, after: str, count: int = -1) -> None:
    """Replace `before`, which must occur, by `after`: everywhere, or in the first `count` places."""
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, count), encoding="utf-8")


def append(path: Path, text: str) -> None:
    """Add `text` at the end."""
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")

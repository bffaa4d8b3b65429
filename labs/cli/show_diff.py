"""A unified diff in colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from labs.cli.console import out


def show_diff(lines: Sequence[str], indent: str = "  ") -> None:
    """Print a unified diff line by line, without wrapping: a wrapped diff cannot be read."""
    for line in lines:
        out.print(Text(indent + line, style=_style(line)), soft_wrap=True)


def _style(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "quiet"
    return {"-": "bad", "+": "good", "@": "quiet"}.get(line[:1], "")

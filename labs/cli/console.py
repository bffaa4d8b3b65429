"""The two consoles and the few styles: a colour means one thing.

NO_COLOR, pipes and narrow terminals are rich's to respect, so nothing here writes an escape itself.
"""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text
from rich.theme import Theme

THEME = Theme(
    {
        "good": "green",
        "bad": "red",
        "warn": "yellow",
        "quiet": "bright_black",
        "strong": "bold",
        "command": "bold cyan",
        "lab": "bold",
        "markdown.code": "cyan",
        "markdown.h2": "bold",
    }
)

STATUS_MARKS = {"new": ("○", "quiet"), "started": ("◐", "warn"), "passed": ("●", "good"), "given_up": ("◌", "quiet")}
OUTCOME_MARKS = {"passed": ("✓", "good"), "failed": ("✗", "bad"), "error": ("!", "warn"), "not_run": ("·", "quiet")}

# `Console.file` looks sys.stdout up at each write, so these follow a redirected stream.
out = Console(theme=THEME, highlight=False)
err = Console(theme=THEME, highlight=False, stderr=True)


def mark(table: dict[str, tuple[str, str]], key: str) -> str:
    """The coloured mark of a status or an outcome, as rich markup."""
    sign, style = table[key]
    return f"[{style}]{sign}[/]"


def paragraph(text: str, style: str = "") -> None:
    """Running text, indented, wrapped to the terminal."""
    out.print(Padding(Text(text, style=style), (0, 2), expand=False))


def next_command(command: str, why: str) -> None:
    """The last line of most commands: what to type now."""
    out.print(f"  [quiet]next[/]  [command]{escape(command)}[/]  [quiet]{escape(why)}[/]", soft_wrap=True)

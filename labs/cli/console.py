"""The two consoles, the styles, and how a paragraph is laid out.

A colour has one meaning. rich respects NO_COLOR, pipes and narrow terminals, so nothing here writes an escape code.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.text import Text
from rich.theme import Theme

from labs.cli.whole_lines import count_cells
from labs.grading.submission_text import clean
from labs.locale import translated

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
WIDEST = 100
"""Columns of running text; longer lines are hard to read."""
_NARROWEST_TEXT = 16
_CODE_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")

STATUS_MARKS = {"new": ("○", "quiet"), "started": ("◐", "warn"), "passed": ("●", "good"), "given_up": ("◌", "quiet")}
OUTCOME_MARKS = {"passed": ("✓", "good"), "failed": ("✗", "bad"), "error": ("!", "warn"), "not_run": ("·", "quiet")}

# `Console.file` looks up sys.stdout at each write, so these follow a redirected stream. Emoji codes stay text, or
# `:heavy_check_mark:` in an error message would become a check mark.
count_cells()
out = Console(theme=THEME, highlight=False, emoji=False)
err = Console(theme=THEME, highlight=False, emoji=False, stderr=True)


def mark(table: dict[str, tuple[str, str]], key: str) -> Text:
    """The coloured mark of a status or an outcome."""
    sign, style = table[key]
    return Text(sign, style=style)


def path_markup(path: Path) -> str:
    """A path as rich markup. Anyone can choose a folder's name, so it is cleaned like a submission's text."""
    return escape(clean(str(path)))


def print_hanging(prefix: Text | str, body: Text) -> None:
    """Print `body` after `prefix`, wrapped to the terminal, with the start of every line below the first one's."""
    head = Text(prefix) if isinstance(prefix, str) else prefix
    indent = head.cell_len
    room = max(_NARROWEST_TEXT, min(out.width, WIDEST) - indent - 1)
    for line in body.wrap(out, room) or [Text()]:
        whole = Text.assemble(head, line)
        whole.rstrip()
        out.print(whole, soft_wrap=True)
        head = Text(" " * indent)


def paragraph(text: str, style: str = "") -> None:
    """Running text in the current language, indented, wrapped to the terminal."""
    print_hanging("  ", Text(translated(text), style=style))


def print_markdown(text: str) -> None:
    """A text with Markdown, indented. Where code has no colour, it keeps its backticks."""
    from rich.markdown import Markdown
    from rich.padding import Padding

    if out.no_color or not out.is_terminal:
        text = _CODE_SPAN.sub(r"`` `\1` ``", text)
    out.print(Padding(Markdown(text), (0, 2)))


def notice(text: str) -> None:
    """A warning on stderr that does not end the command."""
    err.print(Text.assemble(("lab:", "warn"), " ", translated(text)), soft_wrap=True)


def next_command(command: str, why: str) -> None:
    """The last line of most commands: what to type next."""
    head = f"  [quiet]{translated('next')}[/]"
    told = escape(with_pack(command))
    out.print(f"{head}  [command]{told}[/]  [quiet]{escape(translated(why))}[/]", soft_wrap=True)


def with_pack(text: str) -> str:
    """A command, or a sentence with commands in backticks, with the `--pack` that this one was run with."""
    pack = os.environ.get("LAB_PACK")
    return (
        re.sub(r"(^|`)lab ", lambda found: f"{found[1]}lab --pack {shlex.quote(clean(pack))} ", text) if pack else text
    )

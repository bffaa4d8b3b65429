"""`lab dev verify` as an author reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from labs.cli.console import out


def show_verification(result: Mapping[str, Any]) -> None:
    """One line a lab that keeps the law; a line a breach for one that does not."""
    if result["ok"]:
        out.print(f"  [good]✓[/] {result['id']}  {result['slug']}  [quiet]{result['grades']} grades[/]")
        return
    out.print(f"  [bad]✗[/] {result['id']}  {result['slug']}")
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(width=4)
    table.add_column(no_wrap=True, style="warn")
    table.add_column(ratio=1)
    for breach in result["breaches"]:
        table.add_row("", breach["law"], Text(breach["sentence"]))
    out.print(table)


def show_summary(results: Sequence[Mapping[str, Any]]) -> None:
    """How many labs keep the law."""
    kept = sum(result["ok"] for result in results)
    style = "good" if kept == len(results) else "bad"
    out.print(f"\n  [{style}]{kept} of {len(results)} labs keep the law.[/]\n")

"""How `lab dev verify` and `lab dev show` print their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from labs.cli.console import out, paragraph, print_hanging

if TYPE_CHECKING:
    from labs.authoring.margins import NearBound
    from labs.authoring.variants import Variant
    from labs.grading.catalog import Lab


def show_verification(result: Mapping[str, Any]) -> None:
    """One line for a lab without violations, otherwise one for each of them. A lab that was only read has no line."""
    if result["ok"] and result["scope"] == "files":
        return
    sign, style = ("✓", "good") if result["ok"] else ("✗", "bad")
    grades = "debugkit's rules" if result["scope"] == "rules" else f"{result['grades']} grades"
    line = Text.assemble("  ", (sign, style), f" {result['id']}  {result['slug']}  ")
    line.append(" · ".join([*([grades] if result["ok"] else []), *([result["why"]] if result["why"] else [])]), "quiet")
    line.rstrip()
    out.print(line, soft_wrap=True)
    if result["ok"]:
        return
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(width=4)
    table.add_column(no_wrap=True, style="warn")
    table.add_column(ratio=1)
    for violation in result["violations"]:
        table.add_row("", violation["rule"], Text(violation["sentence"]))
    out.print(table)


def show_summary(results: Sequence[Mapping[str, Any]]) -> None:
    """Which labs were skipped, and how many meet the requirements."""
    skipped = [result["id"] for result in results if result["ok"] and result["scope"] == "files"]
    if skipped:
        paragraph(f"· not graded, unchanged since their full verification: {' '.join(skipped)}", style="quiet")
    met = sum(result["ok"] for result in results)
    style = "good" if met == len(results) else "bad"
    out.print(f"\n  [{style}]{met} of {len(results)} labs meet the requirements.[/]\n")


def show_margins(lab: Lab, found: Sequence[NearBound]) -> None:
    """The comparisons of one lab that hold by a small margin, by correct fix."""
    if not found:
        out.print(f"  [good]✓[/] {lab.id}  {lab.slug}  [quiet]every comparison is far from its bound[/]")
        return
    out.print(f"  [warn]![/] {lab.id}  {lab.slug}")
    for one in found:
        out.print(f"    [warn]{one.check}[/], checks.py:{one.line}", soft_wrap=True)
        for words in dict.fromkeys(one.words.values()):
            fixes = [fix for fix, own in one.words.items() if own == words]
            print_hanging("      ", Text(f"{words} ({', '.join(fixes)})"))


def show_variants(variants: Sequence[Variant]) -> None:
    """A line for each wrong fix and alternative."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(style="quiet")
    for variant in variants:
        table.add_row(f"  {variant.name}", variant.why or "")
    out.print(table)

"""The report on a terminal: coloured by rich where it is installed, the same lines as plain text where it is not."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator

from debugkit.finding import Finding, Severity
from debugkit.report.data import ReportData
from debugkit.report.not_examined import groups, summary
from debugkit.report.wording import evidence_shown, evidence_text, place, source_lines, verdict

Line = list[tuple[str, str]]
"""Texts, each with its rich style."""
WIDTH = 100
"""Columns of text that goes to no terminal."""
_WIDEST, _NARROWEST = 120, 40
_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}
_FEW = 3
"""Up to as many rules that were not examined are shown with their reasons."""
_GLUE = "\N{NO-BREAK SPACE}"


def plain(report: ReportData, *, errors_only: bool = False, verbose: bool = False, width: int = WIDTH) -> str:
    """The report as text without colour."""
    lines = _lines(report, max(width, _NARROWEST), errors_only, verbose)
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def terminal_width() -> int:
    """The columns of the terminal (or `$COLUMNS`), at most 120; 100 where stdout is no terminal."""
    return min(shutil.get_terminal_size((WIDTH, 24)).columns, _WIDEST)


def show(report: ReportData, *, verbose: bool = False) -> None:
    """Write the report to stdout, in colour where stdout is a terminal and rich is installed."""
    width = terminal_width()
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        sys.stdout.write(plain(report, width=width, verbose=verbose) + "\n")
        return
    console = Console(highlight=False, soft_wrap=True)
    for line in _lines(report, max(width, _NARROWEST), errors_only=False, verbose=verbose):
        console.print(Text.assemble(*line))


def _lines(report: ReportData, width: int, errors_only: bool, verbose: bool) -> Iterator[Line]:
    if report.title:
        yield from _wrapped("debugkit  ", report.title, width, "dim", "bold")
    else:
        yield [("debugkit", "bold")]
    yield []
    if report.failure is not None:
        yield from _wrapped("FAILED  ", report.failure, width, label="bold red")
        yield []
    for finding, consequences in report.by_cause:
        if errors_only and finding.severity is not Severity.ERROR:
            continue
        yield from _finding(finding, width)
        yield from _consequences(consequences, width)
        yield []
    yield from _verdict(report, width)
    if not errors_only:
        yield from _limits(report, width, verbose)


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    head, name, where = f"{finding.severity.upper():<8}", f"{finding.code}  {finding.name}", place(finding.location)
    gap = width - len(head) - len(name) - len(where)
    title: Line = [(head, _COLOURS[finding.severity]), (name, f"bold link {finding.url}")]
    if gap >= 2:
        yield [*title, (" " * gap if where else "", ""), (where, "cyan")]
    else:
        yield title
        yield [(f"  {where}", "cyan")]
    yield from _wrapped("  ", finding.message, width)
    yield from _source(finding, width)
    evidence = "  ".join(_glued(key, value) for key, value in evidence_shown(finding))
    yield from _wrapped("  evidence  ", evidence, width, "dim", "dim")
    yield from _wrapped("  fix       ", finding.fix, width, label="bold green")


def _glued(key: str, value: object) -> str:
    """`key=value`, which stays on one line unless it is long."""
    text = f"{key}={evidence_text(value)}"
    return text.replace(" ", _GLUE) if len(text) <= 40 else text


def _source(finding: Finding, width: int) -> Iterator[Line]:
    lines = source_lines(finding.location)
    gutter = max((len(str(number)) for number, _ in lines), default=0)
    for number, text in lines:
        here = number == finding.location.line
        room = width - gutter - 7
        shown = text if len(text) <= room else f"{text[: room - 1]}…"
        style = "bold" if here else "dim"
        yield [("  → " if here else "    ", "bold red"), (f"{number:>{gutter}} │ ", "dim"), (shown, style)]


def _consequences(findings: list[Finding], width: int) -> Iterator[Line]:
    for index, finding in enumerate(findings):
        corner = "└─" if index == len(findings) - 1 else "├─"
        where = place(finding.location)
        text = f"explains {finding.code} {finding.name}{f' ({where})' if where else ''}: {finding.message}"
        yield from _wrapped(f"  {corner} ", text, width, "dim", "dim")


def _wrapped(head: str, text: str, width: int, style: str = "", label: str = "") -> Iterator[Line]:
    """`head` once, in the style `label`, and the text wrapped beside it."""
    parts = textwrap.wrap(text, max(width - len(head), 20), break_long_words=False, break_on_hyphens=False)
    for index, part in enumerate(parts):
        yield [(" " * len(head) if index else head, label), (part.replace(_GLUE, " "), style)]


def _verdict(report: ReportData, width: int) -> Iterator[Line]:
    text, quality = verdict(report)
    mark, colour = {"good": ("✓", "bold green"), "fair": ("!", "bold yellow"), "bad": ("✗", "bold red")}[quality]
    yield from _wrapped(f"{mark} ", text, width, colour, colour)


def _limits(report: ReportData, width: int, verbose: bool) -> Iterator[Line]:
    """The rules that were not examined: a few in full, many as one sentence, with `verbose` all of them in groups."""
    if len(report.not_examined) <= _FEW:
        for entry in report.not_examined:
            yield from _wrapped("  not examined  ", f"{entry.code}: {entry.why}", width, "dim", "dim")
    else:
        more = "" if verbose else "; --verbose or report.not_examined lists them"
        yield from _wrapped("  ", f"Not examined: {summary(report)}{more}.", width, "dim", "dim")
        if verbose:
            yield from _groups(report, width)
    if verbose and report.examined:
        yield []
        yield [(f"  {len(report.examined)} examined", "bold")]
        yield from _wrapped("    ", " ".join(report.examined), width)


def _groups(report: ReportData, width: int) -> Iterator[Line]:
    for group in groups(report):
        yield []
        yield from _wrapped("  ", group.heading, width, "bold")
        for why, codes in group.by_reason.items():
            if len(codes) > 1:
                yield from _wrapped("    ", " ".join(codes), width)
            yield from _wrapped(f"    {codes[0]}  " if len(codes) == 1 else " " * 11, why, width, "dim")

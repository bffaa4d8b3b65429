"""The report on a terminal: coloured by rich where it is installed, the same lines as plain text where it is not."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator

from debugkit.finding import Finding, Severity
from debugkit.report import Report
from debugkit.report.places import evidence_text, place, plural, source_lines

Span = tuple[str, str]
"""A text and its rich style."""
_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}
_WIDTH = 100


def plain(report: Report, *, errors_only: bool = False, width: int = _WIDTH) -> str:
    """The report as text without colour."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in _lines(report, width, errors_only))


def show(report: Report) -> None:
    """Write the report to stdout, in colour where stdout is a terminal and rich is there."""
    width = min(shutil.get_terminal_size().columns, 120)
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        sys.stdout.write(plain(report, width=width) + "\n")
        return
    console = Console(highlight=False, soft_wrap=True)
    for line in _lines(report, width, errors_only=False):
        console.print(Text.assemble(*line))


def _lines(report: Report, width: int, errors_only: bool) -> Iterator[list[Span]]:
    yield [("debugkit", "bold"), (f"  {report.title}" if report.title else "", "dim")]
    yield []
    if report.failure is not None:
        yield from _wrapped("The observed step failed. ", report.failure, width, "bold red")
        yield []
    for finding, consequences in report.by_cause:
        if errors_only and finding.severity is not Severity.ERROR:
            continue
        yield from _finding(finding, width)
        yield from _consequences(consequences, width)
        yield []
    yield [_verdict(report)]
    if not errors_only:
        yield from _limits(report, width)


def _finding(finding: Finding, width: int) -> Iterator[list[Span]]:
    colour = _COLOURS[finding.severity]
    head = f"{finding.severity.upper():<8}{finding.code}  "
    where = place(finding.location)
    gap = " " * max(2, width - len(head) - len(finding.name) - len(where))
    yield [
        (f"{finding.severity.upper():<8}", colour),
        (f"{finding.code}  {finding.name}{gap}", "bold"),
        (where, "cyan"),
    ]
    yield from _wrapped("  ", finding.message, width)
    yield from _source(finding)
    evidence = "  ".join(f"{key}={evidence_text(value)}" for key, value in finding.evidence.items())
    if evidence:
        yield from _wrapped("  evidence  ", evidence, width, "dim")
    yield from _wrapped("  fix       ", finding.fix, width, "green")


def _source(finding: Finding) -> Iterator[list[Span]]:
    for number, text in source_lines(finding.location):
        here = number == finding.location.line
        yield [("  → " if here else "    ", "bold red"), (f"{number:>5} │ ", "dim"), (text, "bold" if here else "dim")]


def _consequences(findings: list[Finding], width: int) -> Iterator[list[Span]]:
    for index, finding in enumerate(findings):
        corner = "└─" if index == len(findings) - 1 else "├─"
        where = place(finding.location)
        text = f"explains {finding.code} {finding.name}{f' ({where})' if where else ''}: {finding.message}"
        yield from _wrapped(f"  {corner} ", text, width, "dim")


def _wrapped(head: str, text: str, width: int, style: str = "") -> Iterator[list[Span]]:
    """`head` once, the text wrapped beside it."""
    indent = " " * len(head) if not head.strip() or head.startswith("  ") else "  "
    for line in textwrap.wrap(text, width, initial_indent=head, subsequent_indent=indent, break_long_words=False):
        yield [(line, style)]


def _verdict(report: Report) -> Span:
    counts = [
        plural(sum(finding.severity is severity for finding in report.causes), str(severity))
        for severity in Severity
        if any(finding.severity is severity for finding in report.causes)
    ]
    found = ", ".join(counts) or ("nothing found" if report.failure is None else "nothing could be found")
    known = f", {plural(len(report.known), 'finding')} known from the baseline" if report.known else ""
    left_out = f", {len(report.not_examined)} not examined" if report.not_examined else ""
    colour = "bold green" if report.ok else "bold red" if report.errors or report.failure else "bold yellow"
    return f"{found[0].upper()}{found[1:]} by {plural(len(report.examined), 'rule')}{left_out}{known}.", colour


def _limits(report: Report, width: int) -> Iterator[list[Span]]:
    """The rules that were not examined, those with the same reason together."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for entry in report.not_examined:
        reasons[entry.why].append(entry.code)
    for why, codes in reasons.items():
        listed = " ".join(codes[:8]) + (f" and {len(codes) - 8} more" if len(codes) > 8 else "")
        yield from _wrapped("  ", f"{listed}: {why}", width, "dim")

"""debugkit's report on a learner's copy, as `lab diagnose` and `lab demo` print it. Its text is clean already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from labs.cli.console import out, paragraph, print_hanging
from labs.locale import message, translated

SEVERITY_STYLES = {"error": "bad", "warning": "warn", "info": "quiet"}
INDENT = "    "


def show_findings(report: Mapping[str, Any]) -> None:
    """The exception of the observed step, if any; then each finding: code and name, message, place, fix."""
    findings, failure = report["findings"], report.get("failure")
    if failure:
        _show_failure(failure, len(report["not_examined"]))
    elif not findings:
        nothing, aside = (
            translated("debugkit finds nothing."),
            translated("The checks may still find what it cannot see."),
        )
        out.print(f"  [good]{nothing}[/] [quiet]{aside}[/]\n")
        return
    roots = [finding for finding in findings if not finding.get("caused_by")]
    for finding in roots:
        _show(finding)
        _show_consequences([other for other in findings if other.get("caused_by") == finding["code"]])


def has_errors(report: Mapping[str, Any]) -> bool:
    """Whether a finding is an error, or the observed step failed."""
    return bool(report.get("failure")) or any(finding["severity"] == "error" for finding in report["findings"])


def _show_failure(failure: str, not_examined: int) -> None:
    paragraph("The observed step failed.", "bad")
    print_hanging(INDENT, Text(translated(failure)))
    if not_examined == 1:
        told = message("1 rule was not examined. Fix this and run `lab diagnose` again.")
    else:
        told = message("{number} rules were not examined. Fix this and run `lab diagnose` again.", number=not_examined)
    paragraph(told, "quiet")
    out.print()


def _show(finding: Mapping[str, Any]) -> None:
    style = SEVERITY_STYLES.get(finding["severity"], "")
    code = (finding["code"], f"bold {style}" if style else "bold")
    severity = (finding["severity"], style)
    print_hanging("  ", Text.assemble(code, "  ", (finding["name"], "strong"), "  ", severity))
    print_hanging(INDENT, Text(finding["message"]))  # debugkit's sentences are English in every language
    place = _place(finding["location"])
    if place:
        print_hanging(INDENT, Text(place, style="quiet"))
    if finding.get("fix"):
        print_hanging(Text(f"{INDENT}{translated('fix')}  ", style="quiet"), Text(finding["fix"]))
    out.print()


def _show_consequences(findings: Sequence[Mapping[str, Any]]) -> None:
    """The findings that the one above explains, in one line: its fix is theirs too."""
    if findings:
        counted = Counter((finding["code"], finding["name"]) for finding in findings)
        names = [f"{code} {name}" + (f" ×{count}" if count > 1 else "") for (code, name), count in counted.items()]
        print_hanging(
            Text(f"{INDENT}{translated('also explains')}  ", style="quiet"), Text(", ".join(names), style="quiet")
        )
        out.print()


def _place(location: Mapping[str, Any] | None) -> str:
    if not location:
        return ""
    parts = []
    if location.get("file"):
        parts.append(f"{location['file']}:{location['line']}" if location.get("line") else location["file"])
    if location.get("module"):
        parts.append(location["module"])
    if location.get("parameter"):
        parts.append(location["parameter"])
    if location.get("step") is not None:
        parts.append(message("step {step}", step=location["step"]))
    return " · ".join(parts)

"""debugkit's report on a learner's copy, as `lab diagnose` and `lab demo` print it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from labs.cli.console import out

SEVERITY_STYLES = {"error": "bad", "warning": "warn", "info": "quiet"}


def show_findings(report: Mapping[str, Any]) -> None:
    """What raised, if the observed step did; each finding: code and name, what was measured, where, what to do."""
    findings, failure = report["findings"], report.get("failure")
    if failure:
        _show_failure(failure, len(report["not_examined"]))
    elif not findings:
        out.print("  [good]debugkit finds nothing.[/] [quiet]What it cannot see, the checks may.[/]\n")
        return
    roots = [finding for finding in findings if not finding.get("caused_by")]
    for finding in roots:
        _show(finding)
        _show_consequences([other for other in findings if other.get("caused_by") == finding["code"]])


def has_errors(report: Mapping[str, Any]) -> bool:
    """Whether any finding is an error, or the observed step failed."""
    return bool(report.get("failure")) or any(finding["severity"] == "error" for finding in report["findings"])


def _show_failure(failure: str, not_examined: int) -> None:
    out.print(Padding(Text.assemble(("The observed step failed. ", "bad"), failure), (0, 2)))
    rules = "1 rule was" if not_examined == 1 else f"{not_examined} rules were"
    out.print(Padding(Text(f"{rules} not examined; mend this and ask again.", style="quiet"), (0, 2)))
    out.print()


def _show(finding: Mapping[str, Any]) -> None:
    style = SEVERITY_STYLES.get(finding["severity"], "")
    heading = Text.assemble(
        "  ", (finding["code"], f"bold {style}" if style else "bold"), "  ", (finding["name"], "strong")
    )
    out.print(heading)
    out.print(Padding(Text(finding["message"]), (0, 2, 0, 4)))
    place = _place(finding["location"])
    if place:
        out.print(Text(f"    {place}", style="quiet"), soft_wrap=True)
    if finding.get("fix"):
        out.print(Padding(Text.assemble(("fix  ", "quiet"), finding["fix"]), (0, 2, 0, 4)))
    out.print()


def _show_consequences(findings: Sequence[Mapping[str, Any]]) -> None:
    """What follows from the finding above, a line each: mending that one mends these."""
    if findings:
        counted = Counter((finding["code"], finding["name"]) for finding in findings)
        names = [f"{code} {name}" + (f" ×{count}" if count > 1 else "") for (code, name), count in counted.items()]
        out.print(Padding(Text(f"follows from it  {', '.join(names)}", style="quiet"), (0, 2, 1, 4)))


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
        parts.append(f"step {location['step']}")
    return " · ".join(parts)

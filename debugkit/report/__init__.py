"""The report: findings, what was examined, and what was not and why. One renderer per file beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps  # `json` here is the renderer beside this file
from pathlib import Path
from typing import Any

from debugkit.finding import Finding, Severity, Unexamined


class DebugkitError(Exception):
    """Raised by `Report.raise_for_errors()`; the message is the report of the errors, `report` the whole of it."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.to_text(errors_only=True))
        self.report = report


@dataclass(frozen=True)
class Report:
    """What check() or watch() found."""

    findings: tuple[Finding, ...] = ()
    """Worst first; each consequence stands right after its cause, whose code it has in `caused_by`."""
    examined: tuple[str, ...] = ()
    """Codes of the rules that were judged."""
    not_examined: tuple[Unexamined, ...] = ()
    """The rules that were not, and why."""
    failure: str | None = None
    """The exception that ended the observed step, in one sentence; None if it ran through."""
    title: str = ""
    """What was examined: the model's class, its size, how."""
    known: tuple[Finding, ...] = ()
    """Findings that the baseline already has; they are in no other count."""

    @property
    def ok(self) -> bool:
        """True if the step ran through and nothing was found at `error` or `warning`."""
        return self.failure is None and all(finding.severity is Severity.INFO for finding in self.findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are proved wrong."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def by_code(self) -> dict[str, tuple[Finding, ...]]:
        """Findings by rule code, consequences included."""
        codes = dict.fromkeys(finding.code for finding in self.findings)
        return {code: tuple(finding for finding in self.findings if finding.code == code) for code in codes}

    @property
    def causes(self) -> tuple[Finding, ...]:
        """The findings that no other one explains."""
        return tuple(finding for finding in self.findings if finding.caused_by is None)

    @property
    def by_cause(self) -> list[tuple[Finding, list[Finding]]]:
        """Each root cause with the findings that it explains."""
        groups: list[tuple[Finding, list[Finding]]] = []
        for finding in self.findings:
            if finding.caused_by is None or not groups:
                groups.append((finding, []))
            else:
                groups[-1][1].append(finding)
        return groups

    def raise_for_errors(self) -> None:
        """Raise DebugkitError if anything was found at `error`, or if the observed step failed."""
        if self.errors or self.failure is not None:
            raise DebugkitError(self)

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON data, schema 1; numbers that JSON has not (NaN, Inf) are strings."""
        from debugkit.report.json import document

        return document(self)

    def to_sarif(self) -> dict[str, Any]:
        """The report as a SARIF 2.1.0 document, as code hosts show it beside the lines of a pull request."""
        from debugkit.report.sarif import document

        return document(self)

    def to_html(self, path: str | Path | None = None) -> str:
        """The report as one page that loads nothing; written to `path` where one is given."""
        from debugkit.report.html import page

        text = page(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_junit(self) -> str:
        """The report as JUnit XML: one test case per rule."""
        from debugkit.report.junit import document

        return document(self)

    def to_text(self, *, errors_only: bool = False) -> str:
        """The report as plain text."""
        from debugkit.report.terminal import plain

        return plain(self, errors_only=errors_only)

    def print(self) -> None:
        """Show the report on the terminal, in colour where it has any."""
        from debugkit.report.terminal import show

        show(self)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from debugkit.report.html import fragment

        return fragment(self)

    def save_json(self, path: str | Path) -> None:
        """Write the JSON report, for `baseline=` of a later check."""
        Path(path).write_text(dumps(self.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def fingerprint(finding: Finding | Mapping[str, Any]) -> tuple[str, str, str, str]:
    """What makes two findings the same one in two runs: code, module, parameter and file; not line or numbers."""
    if isinstance(finding, Finding):
        code, place = finding.code, finding.location
        module, parameter, file = place.module, place.parameter, place.file
    else:
        code, location = finding["code"], finding["location"]
        module, parameter, file = location["module"], location["parameter"], location["file"]
    return code, module or "", parameter or "", Path(file).name if file else ""

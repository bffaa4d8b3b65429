"""The report: findings, what was examined, and what was not and why. One renderer per file beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps  # `json` here is the module beside this file
from pathlib import Path
from typing import Any, Self

from debugkit.report.data import ReportData, fingerprint
from debugkit.report.json import ReportFormatError

__all__ = ["DebugkitError", "Report", "ReportData", "ReportFormatError", "fingerprint"]


class DebugkitError(Exception):
    """Raised by `Report.raise_for_errors()` and by `watch(on_finding="raise")`.

    The message is the failure and the errors as text; `report` is the whole report.
    """

    def __init__(self, report: Report) -> None:
        super().__init__(report.to_text(errors_only=True))
        self.report = report


@dataclass(frozen=True)
class Report(ReportData):
    """What `check()` or `watch()` found. `print(report)` shows it; so does a notebook cell that ends in it."""

    def raise_for_errors(self) -> None:
        """Raise DebugkitError if anything was found at `error`, or if the observed step failed."""
        if self.errors or self.failure is not None:
            raise DebugkitError(self)

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON data, schema 1; `debugkit/report/schema.json` describes it.

        In the evidence, tuples are lists, and numbers that JSON does not have are the strings `"nan"`, `"inf"`,
        `"-inf"`.
        """
        from debugkit.report.json import document

        return document(self)

    @classmethod
    def from_json(cls, source: Mapping[str, Any] | str | Path) -> Self:
        """The report that `to_json()` or `save_json()` wrote: `Report.from_json(report.to_json()) == report`.

        `source` is the document, its text, or the path of a file. Evidence keeps its JSON form: `"nan"` stays a string.
        Raises ReportFormatError, a ValueError, if it is no report or has a schema that this version does not know, and
        OSError if the file cannot be read.
        """
        from debugkit.report.json import read

        return read(source, cls)

    def save_json(self, path: str | Path) -> None:
        """Write the JSON report to `path`, for `from_json()` and for `baseline=` of a later check."""
        Path(path).write_text(dumps(self.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")

    def to_sarif(self) -> dict[str, Any]:
        """The report as a SARIF 2.1.0 document, as code hosts show it beside the lines of a pull request."""
        from debugkit.report.sarif import document

        return document(self)

    def to_html(self, path: str | Path | None = None) -> str:
        """The report as one HTML page that loads nothing; also written to `path` if one is given."""
        from debugkit.report.html import page

        text = page(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_junit(self) -> str:
        """The report as JUnit XML: one test case per rule, and one for the step if it failed."""
        from debugkit.report.junit import document

        return document(self)

    def to_text(self, *, verbose: bool = False, errors_only: bool = False, width: int = 100) -> str:
        """The report as plain text, `width` columns wide.

        Rules that were not examined are one sentence with counts; `verbose` lists each with its reason. `errors_only`
        leaves out all but the failure and the findings at `error`.
        """
        from debugkit.report.terminal import plain

        return plain(self, errors_only=errors_only, verbose=verbose, width=width)

    def print(self, *, verbose: bool = False) -> None:
        """Show the report on stdout, as wide as the terminal and in colour where it has any; see `to_text`."""
        from debugkit.report.terminal import show

        show(self, verbose=verbose)

    def __str__(self) -> str:
        from debugkit.report.terminal import terminal_width

        return self.to_text(width=terminal_width())

    def _repr_html_(self) -> str:
        from debugkit.report.html import fragment

        return fragment(self)

"""What the commands share: the options of a report, how it is written, and the exit code that it gives."""

from __future__ import annotations

import contextlib
import enum
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from debugkit.finding import Severity

if TYPE_CHECKING:
    from debugkit.report import Report


class Format(enum.StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    JUNIT = "junit"
    HTML = "html"


Select = Annotated[str | None, typer.Option(help="Codes or prefixes to examine, separated by commas: DK1,DK305.")]
Ignore = Annotated[str | None, typer.Option(help="Codes or prefixes to leave out, separated by commas.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to this file.")]
As = Annotated[Format, typer.Option("--format", "-f", help="How the report is written.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="List each rule that was not examined, with its reason.")
]
FailOn = Annotated[
    Severity | None, typer.Option(help="The least severity that makes the exit code 1: error by default.")
]


def codes(text: str | None) -> list[str] | None:
    return None if text is None else [code.strip() for code in text.split(",") if code.strip()]


def stdout_kept_for(format: Format, output: Path | None) -> contextlib.AbstractContextManager[object]:
    machine = format is not Format.TEXT and output is None
    return contextlib.redirect_stdout(sys.stderr) if machine else contextlib.nullcontext()


def deliver(report: Report, format: Format, output: Path | None, verbose: bool) -> None:
    renderers: dict[Format, Callable[[], str]] = {
        Format.TEXT: lambda: report.to_text(verbose=verbose),
        Format.JSON: lambda: json.dumps(report.to_json(), indent=2, allow_nan=False),
        Format.SARIF: lambda: json.dumps(report.to_sarif(), indent=2, allow_nan=False),
        Format.JUNIT: report.to_junit,
        Format.HTML: report.to_html,
    }
    if output is not None:
        output.write_text(renderers[format]().rstrip("\n") + "\n", encoding="utf-8")
        write(f"Written to {output}.")
    elif format is Format.TEXT:
        report.print(verbose=verbose)
    else:
        write(renderers[format]())


def exit_code(report: Report, fail_on: Severity) -> int:
    failing = any(finding.severity.rank <= fail_on.rank for finding in report.findings)
    return int(failing or report.failure is not None)


def write(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def usage(sentence: str) -> NoReturn:
    sys.stderr.write(f"debugkit: {sentence}\n")
    raise typer.Exit(2)

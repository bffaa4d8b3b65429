"""What `watch()` does with each finding: log it, raise it, or pass it to a function."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from debugkit.finding import Finding, Severity
from debugkit.report import DebugkitError, Report

OnFinding = Literal["log", "raise"] | Callable[[Finding], None]

_log = logging.getLogger("debugkit")
_LEVELS = {Severity.ERROR: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.INFO: logging.INFO}


def tell(finding: Finding, on_finding: OnFinding, title: str = "") -> None:
    """Pass the finding to `on_finding`, or raise it, or log it. Raises DebugkitError."""
    if callable(on_finding):
        on_finding(finding)
    elif on_finding == "raise" and finding.severity is Severity.ERROR:
        raise DebugkitError(Report(findings=(finding,), examined=(finding.code,), title=title))
    else:
        _log.log(_LEVELS[finding.severity], "%s %s: %s", finding.code, finding.name, finding.message)

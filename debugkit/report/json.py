"""The report as JSON data, schema 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from debugkit.finding import Finding
from debugkit.report import Report


def document(report: Report) -> dict[str, Any]:
    """What `debugkit check --json` prints; keys are stable within a schema."""
    return {
        "schema": 1,
        "findings": [finding_document(finding) for finding in report.findings],
        "examined": list(report.examined),
        "not_examined": [{"code": entry.code, "why": entry.why} for entry in report.not_examined],
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding."""
    place = finding.location
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "certainty": str(finding.certainty),
        "message": finding.message,
        "location": {
            "module": place.module,
            "parameter": place.parameter,
            "file": place.file,
            "line": place.line,
            "step": place.step,
        },
        "evidence": {key: plain(value) for key, value in finding.evidence.items()},
        "fix": finding.fix,
        "url": finding.url,
        "caused_by": finding.caused_by,
    }


def plain(value: object) -> Any:
    """A value as JSON has it: tuples as lists, NaN and infinities as strings, anything unknown as its text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)

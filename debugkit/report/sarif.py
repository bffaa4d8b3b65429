"""The report in SARIF 2.1.0 (docs.oasis-open.org/sarif/sarif/v2.1.0), which code hosts show beside the lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from debugkit import __version__
from debugkit.finding import Finding, Severity
from debugkit.registry import find_rule
from debugkit.report import Report, fingerprint
from debugkit.report.json import plain

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def document(report: Report) -> dict[str, Any]:
    """One run; rules that were not examined are notifications of the tool."""
    codes = sorted({finding.code for finding in report.findings})
    driver = {
        "name": "debugkit",
        "semanticVersion": __version__,
        "informationUri": "https://pypi.org/project/vla-debug-lab/",
        "rules": [_rule(code) for code in codes],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "originalUriBaseIds": {"SRCROOT": {"uri": f"{Path.cwd().as_uri()}/"}},
                "invocations": [{"executionSuccessful": report.failure is None, **_notifications(report)}],
                "results": [_result(finding, codes.index(finding.code)) for finding in report.findings],
            }
        ],
    }


def _rule(code: str) -> dict[str, Any]:
    rule = find_rule(code)
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "help": {"text": rule.page, "markdown": rule.page},
        "helpUri": rule.url,
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    cause = f" Caused by {finding.caused_by}." if finding.caused_by else ""
    return {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message}{cause} Fix: {finding.fix}"},
        "locations": _locations(finding),
        "partialFingerprints": {"debugkit/v1": "|".join(fingerprint(finding))},
        "properties": {"certainty": str(finding.certainty), "evidence": plain(finding.evidence)},
    }


def _locations(finding: Finding) -> list[dict[str, Any]]:
    place, location = finding.location, {}
    if place.file is not None:
        path = Path(place.file)
        inside = path.is_relative_to(Path.cwd())
        artifact = (
            {"uri": path.relative_to(Path.cwd()).as_posix(), "uriBaseId": "SRCROOT"}
            if inside
            else {"uri": path.as_uri() if path.is_absolute() else path.as_posix()}
        )
        location["physicalLocation"] = {"artifactLocation": artifact, "region": {"startLine": place.line or 1}}
    name = place.parameter or place.module
    if name is not None:
        kind = "variable" if place.parameter else "object"
        location["logicalLocations"] = [{"fullyQualifiedName": name or "model", "kind": kind}]  # type: ignore[assignment]
    return [location] if location else []


def _notifications(report: Report) -> dict[str, Any]:
    entries = [
        {"level": "note", "message": {"text": f"{entry.code} was not examined: {entry.why}"}}
        for entry in report.not_examined
    ]
    if report.failure is not None:
        entries.insert(0, {"level": "error", "message": {"text": report.failure}})
    return {"toolExecutionNotifications": entries} if entries else {}

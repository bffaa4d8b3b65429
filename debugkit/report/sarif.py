"""The report in SARIF 2.1.0 (docs.oasis-open.org/sarif/sarif/v2.1.0), which code hosts show beside the lines.

GitHub rejects a whole file for one result without a file: a finding that has none is put at line 1 of a file that is
part of the run, and a step that failed is a result too, since GitHub does not show notifications.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from debugkit.finding import Finding, Severity
from debugkit.json_values import json_value
from debugkit.report.data import ReportData, fingerprint
from debugkit.rule import UnknownCodeError, find_rule
from debugkit.version import __version__

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_FAILED = {
    "id": "step-failed",
    "name": "step-failed",
    "shortDescription": {"text": "The training step or loop raised an exception, so rules could not be examined."},
    "defaultConfiguration": {"level": "error"},
}


def document(report: ReportData) -> dict[str, Any]:
    """One run; rules that were not examined are notifications of the tool."""
    first = {finding.code: finding for finding in reversed(report.findings)}
    codes, anchor = sorted(first), _anchor(report)
    rules = [_rule(first[code]) for code in codes]
    results = [_result(finding, codes.index(finding.code), anchor) for finding in report.findings]
    if report.failure is not None:
        results.insert(0, _failure(report.failure, len(rules), anchor))
        rules.append(_FAILED)
    driver = {
        "name": "debugkit",
        "semanticVersion": report.versions.get("debugkit", __version__),
        "informationUri": "https://vla-debug-lab.github.io/vla-debug-lab/debugkit/",
        "rules": rules,
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "originalUriBaseIds": {"SRCROOT": {"uri": f"{Path.cwd().as_uri()}/"}},
                "invocations": [{"executionSuccessful": report.failure is None, **_notifications(report)}],
                "results": results,
                "properties": {"title": report.title, "versions": dict(report.versions)},
            }
        ],
    }


def _rule(finding: Finding) -> dict[str, Any]:
    try:
        rule = find_rule(finding.code)
    except UnknownCodeError:  # a report that another version of debugkit has written
        return {"id": finding.code, "name": finding.name, "helpUri": finding.url}
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "help": {"text": rule.page, "markdown": rule.page},
        "helpUri": rule.url,
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding, rule_index: int, anchor: str) -> dict[str, Any]:
    cause = f" Caused by {finding.caused_by}." if finding.caused_by else ""
    return {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message}{cause} Fix: {finding.fix}"},
        "locations": [_location(finding, anchor)],
        "partialFingerprints": {"debugkit/v1": "|".join(fingerprint(finding))},
        "properties": {"certainty": str(finding.certainty), "evidence": json_value(finding.evidence)},
    }


def _failure(text: str, rule_index: int, anchor: str) -> dict[str, Any]:
    return {
        "ruleId": _FAILED["id"],
        "ruleIndex": rule_index,
        "level": "error",
        "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(anchor), "region": {"startLine": 1}}}],
        "partialFingerprints": {"debugkit/v1": "step-failed"},
    }


def _location(finding: Finding, anchor: str) -> dict[str, Any]:
    place = finding.location
    found: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": _artifact(place.file or anchor),
            "region": {"startLine": (place.line or 1) if place.file else 1},
        }
    }
    name = place.parameter or place.module
    if name is not None:
        kind = "variable" if place.parameter else "object"
        found["logicalLocations"] = [{"fullyQualifiedName": name or "model", "kind": kind}]
    return found


def _artifact(file: str) -> dict[str, str]:
    path = Path(file)
    if path.is_relative_to(Path.cwd()):
        return {"uri": path.relative_to(Path.cwd()).as_posix(), "uriBaseId": "SRCROOT"}
    return {"uri": path.as_uri() if path.is_absolute() else path.as_posix()}


def _anchor(report: ReportData) -> str:
    """The file for what has none: one that a finding names, else the program that runs; both in the working folder."""
    named = [finding.location.file for finding in report.findings if finding.location.file is not None]
    script = Path(sys.argv[0]).resolve()
    inside = [file for file in [*named, str(script)] if Path(file).is_relative_to(Path.cwd()) and Path(file).is_file()]
    return inside[0] if inside else "pyproject.toml"


def _notifications(report: ReportData) -> dict[str, Any]:
    entries = [
        {"level": "note", "message": {"text": f"{entry.code} was not examined: {entry.why}"}}
        for entry in report.not_examined
    ]
    if report.failure is not None:
        entries.insert(0, {"level": "error", "message": {"text": report.failure}})
    return {"toolExecutionNotifications": entries} if entries else {}

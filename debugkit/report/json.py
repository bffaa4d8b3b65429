"""The report as JSON data, schema 1, which `schema.json` beside this describes: `document` writes it, `read` reads it.

Within a schema, keys are only added. Reading ignores keys it does not know and fills in those that an older version of
debugkit did not write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from debugkit.finding import Certainty, Finding, Location, Severity, Unexamined
from debugkit.json_values import json_value
from debugkit.report.data import ReportData
from debugkit.version import __version__

SCHEMA = 1
AnyReport = TypeVar("AnyReport", bound=ReportData)


class ReportFormatError(ValueError):
    """A document is no report that this version of debugkit can read; the message says why."""


def document(report: ReportData) -> dict[str, Any]:
    """What `debugkit check --format json` prints."""
    return {
        "schema": SCHEMA,
        "ok": report.ok,
        "title": report.title,
        "failure": report.failure,
        "versions": dict(report.versions),
        "findings": [finding_document(finding) for finding in report.findings],
        "known": [finding_document(finding) for finding in report.known],
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
            "input": place.input,
        },
        "evidence": json_value(finding.evidence),
        "fix": finding.fix,
        "url": finding.url,
        "caused_by": finding.caused_by,
        "affects": list(finding.affects),
    }


def read(source: Mapping[str, Any] | str | Path, kind: type[AnyReport]) -> AnyReport:
    """The report of a document, of its text, or of the file that holds it. Raises ReportFormatError and OSError."""
    return _report(_Part(_document(source), "the report"), kind)


def _document(source: Mapping[str, Any] | str | Path) -> object:
    if isinstance(source, Mapping):
        return source
    is_text = isinstance(source, str) and source.lstrip()[:1] == "{"
    text = str(source) if is_text else Path(source).read_text(encoding="utf-8")
    try:
        return json.loads(text)
    except ValueError as error:
        name = "The text" if is_text else str(source)
        raise ReportFormatError(f"{name} is not JSON: {error}.") from None


class _Part:
    """One object of the document, with the checks that its values need."""

    def __init__(self, value: object, name: str) -> None:
        if not isinstance(value, Mapping):
            raise ReportFormatError(f"{name[0].upper()}{name[1:]} must be an object, but is {value!r:.60}.")
        self._values = value
        self._name = name

    def get(self, key: str, kind: type[Any], default: Any = ...) -> Any:
        """The value under `key`; `default` where it is absent, which is an error without one."""
        if key not in self._values:
            if default is ...:
                raise ReportFormatError(f"{self._name[0].upper()}{self._name[1:]} has no {key!r}.")
            return default
        value = self._values[key]
        if value is None and default is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ReportFormatError(f"{key!r} of {self._name} must be {_NAMES[kind]}, but is {value!r:.60}.")
        return value

    def parts(self, key: str) -> list[_Part]:
        """The objects in the list under `key`; none where it is absent."""
        return [_Part(value, f"{key}[{index}]") for index, value in enumerate(self.get(key, list, []))]

    def strings(self, key: str) -> tuple[str, ...]:
        """The list of strings under `key`; empty where it is absent."""
        values = self.get(key, list, [])
        if not all(isinstance(value, str) for value in values):
            raise ReportFormatError(f"{key!r} of {self._name} must be a list of strings.")
        return tuple(values)


_NAMES = {str: "a string", int: "a whole number", list: "a list", Mapping: "an object"}


def _report(part: _Part, kind: type[AnyReport]) -> AnyReport:
    schema = part.get("schema", int)
    if schema != SCHEMA:
        why = "a newer version of debugkit wrote it, so update debugkit" if schema > SCHEMA else "no such schema exists"
        raise ReportFormatError(f"The report has schema {schema}, and debugkit {__version__} reads {SCHEMA}: {why}.")
    part.get("findings", list)  # without this list it is some other document
    return kind(
        findings=tuple(_finding(each) for each in part.parts("findings")),
        examined=part.strings("examined"),
        not_examined=tuple(
            Unexamined(each.get("code", str), each.get("why", str)) for each in part.parts("not_examined")
        ),
        failure=part.get("failure", str, None),
        title=part.get("title", str, ""),
        known=tuple(_finding(each) for each in part.parts("known")),
        versions={str(name): str(version) for name, version in part.get("versions", Mapping, {}).items()},
    )


def _finding(part: _Part) -> Finding:
    place = _Part(part.get("location", Mapping, {}), "a location")
    try:
        severity, certainty = Severity(part.get("severity", str)), Certainty(part.get("certainty", str))
    except ValueError as error:
        if isinstance(error, ReportFormatError):
            raise
        raise ReportFormatError(f"A finding has an unknown severity or certainty: {error}.") from None
    return Finding(
        code=part.get("code", str),
        name=part.get("name", str),
        severity=severity,
        certainty=certainty,
        message=part.get("message", str),
        location=Location(
            module=place.get("module", str, None),
            parameter=place.get("parameter", str, None),
            file=place.get("file", str, None),
            line=place.get("line", int, None),
            step=place.get("step", int, None),
            input=place.get("input", str, None),
        ),
        evidence=dict(part.get("evidence", Mapping, {})),
        fix=part.get("fix", str),
        url=part.get("url", str),
        caused_by=part.get("caused_by", str, None),
        affects=part.strings("affects"),
    )

"""The report as JUnit XML, which every CI system reads: a test case per rule, skipped where it was not examined."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from debugkit.finding import Finding, Severity
from debugkit.registry import find_rule
from debugkit.report import Report
from debugkit.report.places import place


def document(report: Report) -> str:
    """A failure for each finding at `error` or `warning`; `info` is written to the case's output."""
    failing = {code: [f for f in found if f.severity is not Severity.INFO] for code, found in report.by_code.items()}
    suite = Element("testsuite", name="debugkit", tests=str(len(report.examined) + len(report.not_examined)))
    suite.set("failures", str(sum(bool(found) for found in failing.values())))
    suite.set("errors", "0" if report.failure is None else "1")
    suite.set("skipped", str(len(report.not_examined)))
    if report.failure is not None:
        suite.set("tests", str(int(suite.get("tests", "0")) + 1))
        case = SubElement(suite, "testcase", classname="debugkit", name="training step")
        SubElement(case, "error", message=_clean(report.failure))
    for code in report.examined:
        case = SubElement(suite, "testcase", classname=f"debugkit.{find_rule(code).family}", name=_name(code))
        for finding in report.by_code.get(code, ()):
            _add(case, finding)
    for entry in report.not_examined:
        case = SubElement(
            suite, "testcase", classname=f"debugkit.{find_rule(entry.code).family}", name=_name(entry.code)
        )
        SubElement(case, "skipped", message=_clean(entry.why))
    indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suite, encoding="unicode") + "\n"


def _add(case: Element, finding: Finding) -> None:
    text = _clean(f"{place(finding.location)}\n{finding.message}\nFix: {finding.fix}\n{finding.url}".lstrip())
    if finding.severity is Severity.INFO:
        SubElement(case, "system-out").text = text
    else:
        SubElement(case, "failure", message=_clean(finding.message), type=str(finding.severity)).text = text


def _name(code: str) -> str:
    return f"{code} {find_rule(code).name}"


def _clean(text: str) -> str:
    """Without the control characters that XML 1.0 has no way to write."""
    return "".join(character for character in text if character in "\t\n" or ord(character) >= 32)

"""The report as JUnit XML, which every CI system reads: a test case per rule, skipped where it was not examined."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from debugkit.finding import Finding, Severity
from debugkit.report.data import ReportData
from debugkit.report.wording import place
from debugkit.rule import UnknownCodeError, find_rule


def document(report: ReportData) -> str:
    """A failure for each finding at `error` or `warning`; `info` is written to the case's output.

    A step that failed is a test case with an error, so that the suite fails even without a finding.
    """
    suite = Element("testsuite", name="debugkit")
    properties = SubElement(suite, "properties")
    for name, value in {"title": report.title, **report.versions}.items():
        SubElement(properties, "property", name=_clean(name), value=_clean(value))
    if report.failure is not None:
        case = SubElement(suite, "testcase", classname="debugkit", name="training step")
        SubElement(case, "error", message=_clean(report.failure), type="failure").text = _clean(report.failure)
    for code in dict.fromkeys([*report.examined, *report.by_code]):
        case = _case(suite, code)
        for finding in report.by_code.get(code, ()):
            _add(case, finding)
    for entry in report.not_examined:
        SubElement(_case(suite, entry.code), "skipped", message=_clean(entry.why))
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for attribute, tag in {"failures": "failure", "errors": "error", "skipped": "skipped"}.items():
        suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suite, encoding="unicode") + "\n"


def _case(suite: Element, code: str) -> Element:
    try:
        rule = find_rule(code)
        return SubElement(suite, "testcase", classname=f"debugkit.{rule.family}", name=f"{code} {rule.name}")
    except UnknownCodeError:  # a report that another version of debugkit has written
        return SubElement(suite, "testcase", classname="debugkit", name=code)


def _add(case: Element, finding: Finding) -> None:
    text = _clean(f"{place(finding.location)}\n{finding.message}\nFix: {finding.fix}\n{finding.url}".lstrip())
    if finding.severity is Severity.INFO:
        SubElement(case, "system-out").text = text
    else:
        SubElement(case, "failure", message=_clean(finding.message), type=str(finding.severity)).text = text


def _clean(text: str) -> str:
    """Without the control characters that XML 1.0 has no way to write."""
    return "".join(character for character in text if character in "\t\n" or ord(character) >= 32)

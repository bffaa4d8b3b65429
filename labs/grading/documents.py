"""Grades as documents for other programs: JSON, JUnit XML, Gradescope."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from labs.grading.grades import SCHEMA, CheckResult, Grade
from labs.grading.submission_text import hanging

Contents = Mapping[str, str]
"""By the number of a lab: SHA-256 of what decided its verdict, as in the results of a class."""


def json_document(grades: Iterable[Grade], contents: Contents | None = None) -> dict[str, Any]:
    """The one document that `lab grade --json` prints."""
    known = contents or {}
    return {"schema": SCHEMA, "labs": [grade.to_json() | {"content": known.get(grade.id)} for grade in grades]}


def exit_code(grades: Iterable[Grade]) -> int:
    """3 if any grade is an error, else 1 if any failed, else 0."""
    verdicts = {grade.verdict for grade in grades}
    if "error" in verdicts:
        return 3
    return 1 if "failed" in verdicts else 0


def junit(grades: Sequence[Grade], contents: Contents | None = None) -> str:
    """A JUnit XML document: one suite per lab, one case per check. A check that did not run is `skipped`."""
    root = ElementTree.Element("testsuites", name="lab grade")
    for grade in grades:
        outcomes = [check.outcome for check in grade.checks]
        # If no check failed, the grade itself becomes a case: a file that cannot be read must not look like a success.
        whole = grade.verdict != "passed" and not {"failed", "error"} & set(outcomes)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=f"lab{grade.id}_{grade.slug}",
            tests=str(len(outcomes) + whole),
            failures=str(outcomes.count("failed") + (whole and grade.verdict == "failed")),
            errors=str(outcomes.count("error") + (whole and grade.verdict == "error")),
            skipped=str(outcomes.count("not_run")),
            time=f"{grade.seconds:.3f}",
        )
        if content := (contents or {}).get(grade.id):
            properties = ElementTree.SubElement(suite, "properties")
            ElementTree.SubElement(properties, "property", name="content", value=content)
        for check in grade.checks:
            _case(suite, f"lab{grade.id}.{check.kind}", check.id, check.outcome, check.message)
        if whole:
            _case(suite, f"lab{grade.id}", "grade", grade.verdict, grade.reason or "")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def gradescope(
    grades: Sequence[Grade], points_per_lab: float = 10.0, contents: Contents | None = None
) -> dict[str, Any]:
    """Gradescope's results.json. A lab's points are all or nothing, like its verdict; its checks are in its output.

    Source: https://gradescope-autograders.readthedocs.io/en/latest/specs/#output-format
    """
    return {
        "score": sum(points_per_lab for grade in grades if grade.passed),
        "execution_time": round(sum(grade.seconds for grade in grades)),
        "output": "" if exit_code(grades) != 3 else "The grader failed on some labs: not the student's fault.",
        "tests": [
            {
                "name": f"Lab {grade.id}: {grade.slug}",
                "number": grade.id,
                "score": points_per_lab if grade.passed else 0.0,
                "max_score": points_per_lab,
                "status": "passed" if grade.passed else "failed",
                "output": "\n".join([_indented(grade.reason or "All checks passed."), *map(_line, grade.checks)]),
                "visibility": "visible",
                "extra_data": {"content": (contents or {}).get(grade.id)},
            }
            for grade in grades
        ],
    }


def _case(suite: ElementTree.Element, classname: str, name: str, outcome: str, message: str) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=classname, name=name)
    tags = {"failed": "failure", "error": "error", "not_run": "skipped"}
    if outcome in tags:
        ElementTree.SubElement(case, tags[outcome], message=message)


def _line(check: CheckResult) -> str:
    return _indented(f"[{check.outcome}] {check.title}" + (f": {check.message}" if check.message else ""))


def _indented(text: str) -> str:
    return hanging(text, "    ")

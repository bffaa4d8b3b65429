"""The documents other programs read."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import labs.grading
from child_processes import run
from labs.grading import CheckResult, Grade, exit_code, gradescope, json_document, junit


def a_grade(verdict: str, *outcomes: str, reason: str | None = None) -> Grade:
    checks = tuple(
        CheckResult(f"test_{i}", f"Title {i}", "behaviour", outcome, "why\x00 \x1b<&>")  # type: ignore[arg-type]
        for i, outcome in enumerate(outcomes)
    )
    return Grade("07", "some_lab", verdict, reason, 1.5, 3, None, checks)  # type: ignore[arg-type]


PASSED, FAILED = a_grade("passed", "passed"), a_grade("failed", "failed", "not_run", reason="1 of 2")
BROKEN, UNREADABLE = a_grade("error", reason="No disk"), a_grade("failed", "not_run", reason="policy.py is missing")


@pytest.mark.parametrize(
    ("grades", "code"),
    [([], 0), ([PASSED], 0), ([PASSED, FAILED], 1), ([FAILED, BROKEN], 3), ([BROKEN], 3), ([UNREADABLE], 1)],
)
def test_the_exit_code_is_the_worst_verdict(grades: list[Grade], code: int) -> None:
    assert exit_code(grades) == code


def test_the_json_document_has_a_schema_and_one_entry_per_lab() -> None:
    document = json_document([PASSED, FAILED])
    assert list(document) == ["schema", "labs"]
    assert [lab["verdict"] for lab in document["labs"]] == ["passed", "failed"]
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_each_document_has_the_hash_of_the_lab() -> None:
    contents = {"07": "abc"}
    assert json_document([PASSED], contents)["labs"][0]["content"] == "abc"
    assert json_document([PASSED])["labs"][0]["content"] is None
    suite = ElementTree.fromstring(junit([PASSED], contents).encode())[0]
    assert [one.attrib for one in suite.iterfind("properties/property")] == [{"name": "content", "value": "abc"}]
    assert suite[0].tag == "properties", "the schema of JUnit has them first"
    assert ElementTree.fromstring(junit([PASSED]).encode()).find(".//properties") is None
    assert gradescope([PASSED], contents=contents)["tests"][0]["extra_data"] == {"content": "abc"}


@pytest.mark.parametrize("grade", [PASSED, FAILED, BROKEN, UNREADABLE], ids=["passed", "failed", "error", "unreadable"])
def test_junit_counts_what_it_lists_and_no_failed_grade_looks_green(grade: Grade) -> None:
    suite = ElementTree.fromstring(junit([grade]).encode())[0]
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == len(suite.findall(f"testcase/{tag}"))
    assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
    bad = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert (bad == 0) == grade.passed


def test_gradescope_gives_a_labs_points_only_for_a_pass() -> None:
    document = gradescope([PASSED, FAILED, BROKEN], points_per_lab=4)
    assert [test["score"] for test in document["tests"]] == [4, 0, 0]
    assert document["score"] == 4
    assert [test["status"] for test in document["tests"]] == ["passed", "failed", "failed"]
    assert "not the student's fault" in document["output"]


def test_every_public_name_is_there() -> None:
    for name in labs.grading.__all__:
        assert getattr(labs.grading, name) is not None


def test_the_catalog_needs_neither_torch_nor_pytest() -> None:
    code = "import sys, labs.grading.catalog; print({'torch', 'pytest', 'transformers', 'rich'} & set(sys.modules))"
    found = run([sys.executable, "-c", code], check=True)
    assert found.stdout == "set()\n"

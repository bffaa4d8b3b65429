"""The JSON form of a report: what it holds, its published schema, and that reading it back loses nothing."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import debugkit
from debugkit import Certainty, Finding, Location, Report, ReportFormatError, Severity, Unexamined
from debugkit.json_values import json_value
from debugkit.report import json as json_report

SCHEMA = json.loads(Path(json_report.__file__).with_name("schema.json").read_text(encoding="utf-8"))

text = st.text(max_size=20)
codes = st.from_regex(r"DK[0-9]{3}", fullmatch=True)
paths = st.none() | text
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text | st.sampled_from(list(Severity)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(text, inner, max_size=4)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)
locations = st.builds(
    Location,
    module=paths,
    parameter=paths,
    file=paths,
    line=st.none() | st.integers(1),
    step=st.none() | st.integers(0),
)
findings = st.builds(
    Finding,
    code=codes,
    name=text,
    severity=st.sampled_from(Severity),
    certainty=st.sampled_from(Certainty),
    message=text,
    location=locations,
    evidence=st.dictionaries(text, values, max_size=4),
    fix=text,
    url=text,
    caused_by=st.none() | codes,
    affects=st.lists(text, max_size=3).map(tuple),
)
several = st.lists(findings, max_size=3).map(tuple)
reports = st.builds(
    Report,
    findings=several,
    examined=st.lists(codes, max_size=3).map(tuple),
    not_examined=st.lists(st.builds(Unexamined, codes, text), max_size=3).map(tuple),
    failure=st.none() | text,
    title=text,
    known=several,
    versions=st.just({"debugkit": "0.0.1", "python": "3.11.0"}) | st.builds(dict),
)


def finding(**changes: Any) -> Finding:
    whole = Finding(
        code="DK002",
        name="silent-broadcast",
        severity=Severity.ERROR,
        certainty=Certainty.PROOF,
        message="Wrong.",
        location=Location(module="head", file="/a/policy.py", line=3, step=0),
        evidence={"loss": math.nan, "largest": (math.inf, -math.inf), "shape": (8, 1)},
        fix="Fix it.",
        url="https://example.org",
        affects=("head",),
    )
    return replace(whole, **changes)


REPORT = Report(
    findings=(finding(), finding(code="DK112", caused_by="DK002")),
    examined=("DK002", "DK112"),
    not_examined=(Unexamined("DK305", "One sample."),),
    failure="The training step raised KeyError.",
    title="Policy",
    known=(finding(code="DK105"),),
)


@given(reports)
def test_reading_back_what_was_written_gives_an_equal_report(report: Report) -> None:
    document = report.to_json()
    again = Report.from_json(document)
    assert again == report
    assert again.ok is report.ok
    assert again.to_json() == document
    assert Report.from_json(json.dumps(document, allow_nan=False)) == report


@given(reports.filter(lambda report: "debugkit" in report.versions))
def test_every_report_is_valid_under_the_published_schema(report: Report) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(report.to_json())))


@given(values)
def test_any_evidence_becomes_json_and_stays_it(value: object) -> None:
    written = json.dumps(json_value(value), allow_nan=False)
    assert json.dumps(json_value(json.loads(written)), allow_nan=False) == written


def test_the_published_schema_describes_each_key_and_nothing_else() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = REPORT.to_json()
    assert list(document) == list(SCHEMA["properties"]) == SCHEMA["required"]
    described = SCHEMA["$defs"]["finding"]
    assert list(document["findings"][0]) == list(described["properties"]) == described["required"]
    place = described["properties"]["location"]
    assert list(document["findings"][0]["location"]) == list(place["properties"]) == place["required"]
    for enum, kind in (("severity", Severity), ("certainty", Certainty)):
        assert described["properties"][enum]["enum"] == [str(member) for member in kind]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (["schema"], 2),
        (["ok"], "yes"),
        (["failure"], 3),
        (["findings", 0, "severity"], "fatal"),
        (["findings", 0, "location", "line"], "3"),
        (["findings", 0, "caused_by"], 2),
        (["not_examined", 0, "why"], None),
        (["examined", 0], "E501"),
    ],
)
def test_the_published_schema_rejects_what_is_no_report(where: list[Any], value: object) -> None:
    document = json.loads(json.dumps(REPORT.to_json()))
    at = document
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_the_document_says_whether_it_is_ok_what_failed_and_with_which_versions() -> None:
    document = json.loads(json.dumps(REPORT.to_json(), allow_nan=False))
    assert document["schema"] == 1
    assert document["ok"] is False
    assert document["failure"] == "The training step raised KeyError."
    assert document["title"] == "Policy"
    assert document["versions"] == {
        "debugkit": debugkit.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    assert document["findings"][1]["caused_by"] == "DK002"
    assert document["findings"][0]["evidence"] == {"loss": "nan", "largest": ["inf", "-inf"], "shape": [8, 1]}
    assert [known["code"] for known in document["known"]] == ["DK105"]
    assert document["not_examined"] == [{"code": "DK305", "why": "One sample."}]


def test_a_report_is_read_from_a_document_a_text_and_a_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    REPORT.save_json(path)
    for source in (REPORT.to_json(), path.read_text(encoding="utf-8"), path, str(path)):
        assert Report.from_json(source) == REPORT
    assert Report.from_json(path).to_text() == REPORT.to_text()


def test_findings_with_a_nan_are_equal_and_other_numbers_are_not() -> None:
    assert finding() == finding(evidence={"loss": float("nan"), "largest": [math.inf, -math.inf], "shape": [8, 1]})
    assert finding() != finding(evidence={"loss": 1.0, "largest": (math.inf, -math.inf), "shape": (8, 1)})
    assert finding() != finding(affects=())
    assert len({finding(), finding(), finding(code="DK003")}) == 2


def test_a_document_of_the_first_release_has_fewer_keys_and_is_read() -> None:
    whole = REPORT.to_json()
    old = {key: whole[key] for key in ("schema", "findings", "examined", "not_examined")}
    for each in old["findings"]:
        del each["affects"]
    read = Report.from_json(old)
    assert [each.code for each in read.findings] == ["DK002", "DK112"]
    assert (read.failure, read.title, read.known, dict(read.versions)) == (None, "", (), {})


def test_keys_that_are_not_known_are_ignored() -> None:
    assert Report.from_json({**REPORT.to_json(), "later": 1}) == REPORT


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({"schema": 2, "findings": []}, r"has schema 2, and debugkit \S+ reads 1: a newer version of debugkit"),
        ({"schema": 0, "findings": []}, "schema 0.*no such schema exists"),
        ({"schema": True, "findings": []}, "'schema' of the report must be a whole number, but is True"),
        ({"findings": []}, "The report has no 'schema'"),
        ({"schema": 1}, "The report has no 'findings'"),
        ({"schema": 1, "findings": "none"}, "'findings' of the report must be a list, but is 'none'"),
        ({"schema": 1, "findings": [3]}, r"Findings\[0\] must be an object, but is 3"),
        ({"schema": 1, "findings": [{}]}, r"Findings\[0\] has no"),
        ({"schema": 1, "findings": [], "failure": 3}, "'failure' of the report must be a string"),
        ({"schema": 1, "findings": [], "examined": [3]}, "'examined' of the report must be a list of strings"),
        ({**REPORT.to_json(), "known": [{**REPORT.to_json()["known"][0], "severity": "fatal"}]}, "'fatal' is not"),
        ("{", "The text is not JSON"),
    ],
)
def test_what_is_no_report_is_a_sentence(source: Any, sentence: str) -> None:
    with pytest.raises(ReportFormatError, match=sentence):
        Report.from_json(source)


def test_a_file_that_is_no_report_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not json")
    with pytest.raises(ReportFormatError, match=r"notes\.txt is not JSON"):
        Report.from_json(tmp_path / "notes.txt")
    with pytest.raises(FileNotFoundError):
        Report.from_json(tmp_path / "absent.json")


def test_a_report_of_another_version_is_rendered_although_its_rules_are_not_known(tmp_path: Path) -> None:
    report = Report(
        findings=(finding(code="DK999", name="later"),),
        examined=("DK998", "DK999"),
        not_examined=(Unexamined("DK997", "Later."),),
    )
    report.save_json(tmp_path / "report.json")
    again = Report.from_json(tmp_path / "report.json")
    assert "DK999" in again.to_text(verbose=True)
    assert "DK999" in again.to_html()
    assert "DK997" in again.to_junit()
    assert again.to_sarif()["runs"][0]["tool"]["driver"]["rules"][0]["id"] == "DK999"

"""What a report promises to those who read it: a person, a CI system, a code host."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding, Severity, SourceLine, Unexamined
from debugkit.folding import fold
from debugkit.registry import Context, find_rule
from debugkit.report import DebugkitError, Report, fingerprint
from debugkit.report.json import plain

NASTY = '<script>alert("x")</script> & \x07 done.'


def found(code: str, message: str = "Wrong.", **where: object) -> Finding:
    return Context(find_rule(code), Declare()).finding(message, fix="Mend it.", **where)  # type: ignore[arg-type]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceLine:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.py").write_text("def loss(p, t):\n    error = p - t\n    return error.mean()\n")
    return SourceLine(str(tmp_path / "policy.py"), 2, "loss")


@pytest.fixture
def report(source: SourceLine) -> Report:
    return Report(
        findings=fold(
            [
                found("DK002", "Shapes broadcast.", at=source, evidence={"pairs": 25, "loss": float("nan")}),
                found("DK112", "Changed.", module="vision.1", severity=Severity.WARNING, evidence={"largest": 0.25}),
            ]
        ),
        examined=("DK002", "DK112"),
        not_examined=(Unexamined("DK305", "One sample."), Unexamined("DK101", "One sample.")),
        title="Policy",
    )


def test_text_is_what_a_person_reads(report: Report) -> None:
    assert str(report) == (
        "debugkit  Policy\n"
        "\n"
        f"{'ERROR   DK002  silent-broadcast':<89}policy.py:2\n"
        "  Shapes broadcast.\n"
        "        1 │ def loss(p, t):\n"
        "  →     2 │     error = p - t\n"
        "        3 │     return error.mean()\n"
        "  evidence  pairs=25  loss=nan\n"
        "  fix       Mend it.\n"
        "\n"
        f"{'WARNING DK112  frozen-parameter-changed':<92}vision.1\n"
        "  Changed.\n"
        "  evidence  largest=0.25\n"
        "  fix       Mend it.\n"
        "\n"
        "1 error, 1 warning by 2 rules, 2 not examined.\n"
        "  DK305 DK101: One sample."
    )


def test_clean_report_says_what_it_did_not_look_at() -> None:
    text = str(Report(examined=("DK002",), not_examined=(Unexamined("DK303", "No padding mask."),)))
    assert "Nothing found by 1 rule, 1 not examined." in text
    assert "DK303: No padding mask." in text


def test_consequences_are_shown_under_their_cause() -> None:
    cause, effect = found("DK105", module="vision"), found("DK112", module="vision.1")
    object.__setattr__(effect, "caused_by", "DK105")
    text = str(Report(findings=(cause, effect), examined=("DK105", "DK112")))
    assert "└─ explains DK112 frozen-parameter-changed (vision.1): Wrong." in text
    assert "1 error by 2 rules." in text


def test_text_is_shown_without_rich_as_well(report: Report, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    report.print()
    with_rich = capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "rich.console", None)
    report.print()
    assert [line.rstrip() for line in with_rich.splitlines()] == capsys.readouterr().out.splitlines()


def test_json_has_exactly_the_documented_keys(report: Report) -> None:
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert list(document) == ["schema", "findings", "examined", "not_examined"]
    keys = ["code", "name", "severity", "certainty", "message", "location", "evidence", "fix", "url", "caused_by"]
    assert list(document["findings"][0]) == keys
    assert list(document["findings"][0]["location"]) == ["module", "parameter", "file", "line", "step"]
    assert document["not_examined"][0] == {"code": "DK305", "why": "One sample."}
    assert document["findings"][0]["evidence"]["loss"] == "nan"


def test_sarif_has_what_the_standard_requires(report: Report) -> None:
    document = json.loads(json.dumps(report.to_sarif(), allow_nan=False))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "debugkit"
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["level"] in ("error", "warning", "note")
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    (place,) = run["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "policy.py", "uriBaseId": "SRCROOT"}
    assert place["physicalLocation"]["region"]["startLine"] == 2
    assert run["results"][1]["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "vision.1"
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"].endswith("/")
    assert run["invocations"] == [
        {
            "executionSuccessful": True,
            "toolExecutionNotifications": [
                {"level": "note", "message": {"text": f"{code} was not examined: One sample."}}
                for code in ("DK305", "DK101")
            ],
        }
    ]


def test_junit_has_a_case_for_each_rule(report: Report) -> None:
    suite = ElementTree.fromstring(report.to_junit())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "2")
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["DK002 silent-broadcast", "DK112 frozen-parameter-changed"]
    assert len(suite) == 4


def test_step_that_failed_is_an_error_in_junit_and_no_pass_anywhere() -> None:
    report = Report(failure="The training step raised KeyError.")
    assert not report.ok
    assert ElementTree.fromstring(report.to_junit()).find("testcase/error").get("message") == report.failure  # type: ignore[union-attr]
    assert report.to_sarif()["runs"][0]["invocations"][0]["executionSuccessful"] is False
    assert "KeyError" in str(report)
    assert "KeyError" in report.to_html()


def test_html_loads_nothing_and_runs_nothing(report: Report, tmp_path: Path) -> None:
    nasty = Report(findings=(found("DK002", NASTY, evidence={NASTY: NASTY}),), title=NASTY)
    text = nasty.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    tags: list[tuple[str, dict[str, str | None]]] = []

    class Collector(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            tags.append((tag, dict(attributes)))

    for document in (text, report.to_html(), report._repr_html_()):
        Collector().feed(document)
    assert not {tag for tag, _ in tags} & {"script", "img", "link", "iframe"}
    assert not any("src" in attributes for _, attributes in tags)
    ElementTree.fromstring(Report(findings=nasty.findings, examined=("DK002",)).to_junit())


@pytest.mark.parametrize(
    ("severity", "ok", "raises"), [("error", False, True), ("warning", False, False), ("info", True, False)]
)
def test_only_errors_are_raised_and_only_information_is_fine(severity: str, ok: bool, raises: bool) -> None:
    report = Report(findings=(found("DK002", severity=Severity(severity)),))
    assert report.ok is ok
    if raises:
        with pytest.raises(DebugkitError, match="DK002"):
            report.raise_for_errors()
    else:
        report.raise_for_errors()


def test_fingerprint_survives_json_and_ignores_lines_and_numbers(source: SourceLine) -> None:
    finding = found("DK002", at=source, module="head", evidence={"pairs": 1})
    moved = found("DK002", "Other.", at=SourceLine(source.file, 99), module="head", evidence={"pairs": 2})
    stored = Report(findings=(finding,)).to_json()["findings"][0]
    assert fingerprint(finding) == fingerprint(moved) == fingerprint(stored)
    assert fingerprint(finding) != fingerprint(found("DK002", at=source, module="body"))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(list(Severity)),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@given(values)
def test_any_evidence_becomes_json(value: object) -> None:
    text = json.dumps(plain(value), allow_nan=False)
    assert json.dumps(plain(json.loads(text)), allow_nan=False) == text


def test_a_report_can_be_saved_after_it_was_rendered(tmp_path: Path) -> None:
    """The renderer `debugkit.report.json` must not take the place of the library of the same name."""
    report = Report(findings=(), examined=(), not_examined=())
    report.to_json()
    report.save_json(tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text(encoding="utf-8").startswith("{")

"""What a report promises to those who read it: a terminal, a notebook, a CI system, a code host."""

from __future__ import annotations

import dataclasses
import json
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from debugkit.declare import Declare
from debugkit.finding import Finding, Severity, SourceLine, Unexamined
from debugkit.report import DebugkitError, Report, fingerprint
from debugkit.report.not_examined import groups
from debugkit.root_cause import fold
from debugkit.rule import Context, find_rule

NASTY = '<script>alert("x")</script> & \x07 done.'


def found(code: str, message: str = "Wrong.", **where: object) -> Finding:
    return Context(find_rule(code), Declare()).finding(message, fix="Fix it.", **where)  # type: ignore[arg-type]


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


def test_text_of_a_report(report: Report) -> None:
    assert report.to_text() == (
        "debugkit  Policy\n"
        "\n"
        f"{'ERROR   DK002  silent-broadcast':<89}policy.py:2\n"
        "  Shapes broadcast.\n"
        "    1 │ def loss(p, t):\n"
        "  → 2 │     error = p - t\n"
        "    3 │     return error.mean()\n"
        "  evidence  pairs=25  loss=nan\n"
        "  fix       Fix it.\n"
        "\n"
        f"{'WARNING DK112  frozen-parameter-changed':<92}vision.1\n"
        "  Changed.\n"
        "  evidence  largest=0.25\n"
        "  fix       Fix it.\n"
        "\n"
        "✗ Found 1 error, 1 warning; 2 rules examined.\n"
        "  not examined  DK305: One sample.\n"
        "  not examined  DK101: One sample."
    )


REASONS = (
    ("DK205", "It needs a running loop: use debugkit.watch()."),
    ("DK206", "It needs a running loop: use debugkit.watch()."),
    ("DK310", "No data loader was given: pass dataloader=."),
    ("DK303", "No padding mask was found: name it with declare=Declare(padding_mask=…)."),
    ("DK508", "It costs 36 forward passes and the budget of 40 is spent: select it alone."),
    ("DK901", "It reads a configuration: call debugkit.integrations.hydra.check_config()."),
    ("DK312", "The loss is no cross_entropy with class ids."),
    ("DK101", "Ignored: the other half trains it."),
    ("DK107", "Observing it raised KeyError: 'x'."),
)


@pytest.fixture
def clean() -> Report:
    return Report(
        examined=("DK002",), not_examined=tuple(Unexamined(*reason) for reason in REASONS), title="Linear, 4 parameters"
    )


def test_a_clean_report_is_short_and_counts_what_it_did_not_examine_by_reason(clean: Report) -> None:
    text = clean.to_text()
    assert text.splitlines()[:3] == ["debugkit  Linear, 4 parameters", "", "✓ No findings; 1 rule examined."]
    folded = " ".join(text.split())
    assert (
        "Not examined: 9 rules (1 failed in debugkit, which is a bug; 2 need a running loop: debugkit.watch, "
        "1 a data loader, 1 a declaration, 1 a larger budget, 1 a Hydra configuration; 1 ignored; 1 does not apply); "
        "--verbose or report.not_examined lists them."
    ) in folded
    assert len(text.splitlines()) <= 10
    assert all(len(line) <= 100 for line in text.splitlines())


def test_the_verbose_report_lists_every_rule_with_its_reason(clean: Report) -> None:
    text = clean.to_text(verbose=True)
    folded = " ".join(text.split())
    for code, why in REASONS:
        assert code in text
        assert why in folded
    assert "\n  2 need a running loop: debugkit.watch\n    DK205 DK206\n" in text
    assert "1 examined DK002" in folded
    assert text.splitlines()[:3] == clean.to_text().splitlines()[:3]


def test_a_few_rules_that_were_not_examined_are_shown_with_their_reasons(clean: Report) -> None:
    text = Report(not_examined=clean.not_examined[3:4]).to_text()
    assert "! No rule was examined." in text
    assert "not examined  DK303: No padding mask was found" in text


def test_every_rule_that_was_not_examined_is_in_exactly_one_group(clean: Report) -> None:
    listed = [entry.code for group in groups(clean) for entry in group.entries]
    assert sorted(listed) == sorted(code for code, _ in REASONS)


@pytest.mark.parametrize("width", [40, 60, 100, 140])
def test_no_line_is_wider_than_asked_for_unless_it_is_one_word(report: Report, clean: Report, width: int) -> None:
    wide = found("DK002", "Shapes broadcast " * 20, module="vision.tower.blocks.11.attention.output.projection")
    for each in (report, clean, Report(findings=(wide,), failure="It failed. " * 30)):
        for verbose in (False, True):
            lines = each.to_text(verbose=verbose, width=width).splitlines()
            assert [line for line in lines if len(line) > width and len(line.split()) > 1] == []


def test_a_long_source_line_is_cut_and_the_common_indent_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(f"    if x:\n        y = {'z' * 200}\n")
    text = Report(findings=(found("DK002", at=SourceLine(str(tmp_path / "deep.py"), 2)),)).to_text(width=60)
    assert "    1 │ if x:\n" in text
    assert f"  → 2 │     y = {'z' * 43}…\n" in text


def test_str_is_as_wide_as_the_terminal(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert str(report) == report.to_text(width=60)
    assert str(report) != report.to_text(width=100)
    monkeypatch.setenv("COLUMNS", "300")
    assert str(report) == report.to_text(width=120)


def test_consequences_are_shown_under_their_cause() -> None:
    cause, effect = found("DK105", module="vision"), found("DK112", module="vision.1")
    object.__setattr__(effect, "caused_by", "DK105")
    text = Report(findings=(cause, effect), examined=("DK105", "DK112")).to_text()
    assert "└─ explains DK112 frozen-parameter-changed (vision.1): Wrong." in text
    assert "✗ Found 1 error; 2 rules examined." in text


def test_text_is_shown_without_rich_as_well(report: Report, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    report.print(verbose=True)
    with_rich = capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "rich.console", None)
    report.print(verbose=True)
    without = capsys.readouterr().out
    assert [line.rstrip() for line in with_rich.splitlines()] == without.splitlines()
    assert without == report.to_text(verbose=True) + "\n"


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
    without_file = run["results"][1]["locations"][0]
    assert without_file["logicalLocations"][0]["fullyQualifiedName"] == "vision.1"
    # GitHub rejects the whole file for one result without a relative address of a file.
    assert without_file["physicalLocation"]["artifactLocation"] == {"uri": "policy.py", "uriBaseId": "SRCROOT"}
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
    assert len(suite.findall("testcase")) == 4
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties == {"title": "Policy", **report.versions}


FAILED = "The training step raised KeyError: 'action'."


@pytest.fixture(params=["alone", "with a finding", "with information"])
def failed(request: pytest.FixtureRequest) -> Report:
    severity = {"with a finding": Severity.ERROR, "with information": Severity.INFO}.get(request.param)
    findings = () if severity is None else (found("DK002", severity=severity),)
    return Report(findings=findings, examined=("DK002", "DK003"), failure=FAILED)


def test_a_step_that_failed_is_never_ok(failed: Report) -> None:
    assert not failed.ok
    with pytest.raises(DebugkitError, match="KeyError"):
        failed.raise_for_errors()


def test_a_step_that_failed_is_the_first_thing_in_the_text_and_in_the_verdict(failed: Report) -> None:
    lines = failed.to_text().splitlines()
    assert lines[2] == f"FAILED  {FAILED}"
    assert lines[-1].startswith("✗ Failed")
    assert lines[-1].endswith("; only 2 rules examined.")
    assert "No findings" not in failed.to_text()
    assert f"FAILED  {FAILED}" in failed.to_text(errors_only=True)


def test_a_step_that_failed_is_a_test_case_with_an_error_in_junit(failed: Report) -> None:
    suite = ElementTree.fromstring(failed.to_junit())
    assert (suite.get("tests"), suite.get("errors")) == ("3", "1")
    error = suite.find("testcase/error")
    assert error is not None
    assert error.get("message") == FAILED


def test_a_step_that_failed_is_a_result_at_error_in_sarif(failed: Report) -> None:
    (run,) = failed.to_sarif()["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False
    first = run["results"][0]
    assert (first["level"], first["message"]["text"], first["ruleId"]) == ("error", FAILED, "step-failed")
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == "step-failed"
    assert len(run["results"]) == 1 + len(failed.findings)
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert "://" not in result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]


def test_a_step_that_failed_is_in_the_heading_of_the_page_and_in_the_notebook(failed: Report) -> None:
    for text in (failed.to_html(), failed._repr_html_()):
        assert "KeyError" in text
        assert 'class="verdict bad">Failed' in text
        assert "No findings" not in text


def test_html_shows_names_of_the_program_as_code() -> None:
    named = dataclasses.replace(found("DK002", "`head<1>` is frozen."), fix="Call `step()`.")
    text = Report(findings=(named,)).to_html()
    assert "<p><code>head&lt;1&gt;</code> is frozen.</p>" in text
    assert "<dd>Call <code>step()</code>.</dd>" in text


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
    assert "<script>alert" not in text
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

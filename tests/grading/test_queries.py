"""`lab run` and `lab diagnose`: the submission runs as in a grade, and nothing is judged."""

from __future__ import annotations

import io
from typing import Any

import pytest

from labs.grading import ForkServer, SubmissionRaisedError, diagnose, protections, run_symptom
from labs.grading.catalog import Lab
from labs.grading.sandbox.diagnosis import merge

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/grading")


def test_the_symptom_is_streamed(toy: Lab, starter: dict[str, str], server: ForkServer) -> None:
    stream = io.StringIO()
    result = run_symptom(toy, starter, stream, server=server)
    assert result.ending is None
    assert stream.getvalue() == result.output
    assert stream.getvalue().startswith("loss after 50 steps: ")


def test_a_loud_symptom_shows_its_traceback_in_the_learners_file(toy: Lab, server: ForkServer) -> None:
    stream = io.StringIO()
    loud = {"policy.py": "def train(*arguments):\n    raise ValueError('too loud')\n"}
    result = run_symptom(toy, loud, stream, server=server)
    assert result.ending is not None
    assert "ValueError: too loud" in stream.getvalue()
    assert "policy.py\", line 2, in train\n    raise ValueError('too loud')" in stream.getvalue()
    assert "sandbox/child.py" not in stream.getvalue()


def test_diagnose_returns_debugkits_report(toy: Lab, starter: dict[str, str], server: ForkServer) -> None:
    report = diagnose(toy, starter, server=server)
    assert {"schema", "findings", "examined", "not_examined", "loop_raised"} <= set(report)
    assert report["loop_raised"] is None
    assert report["ok"] is all(finding["severity"] == "info" for finding in report["findings"])


def test_diagnose_reports_what_a_submission_without_a_model_raised(toy: Lab, server: ForkServer) -> None:
    with pytest.raises(SubmissionRaisedError, match="has no attribute 'Head'"):
        diagnose(toy, {"policy.py": "x = 1"}, server=server)


@pytest.mark.extended
def test_diagnose_carries_what_the_observed_step_raised(toy: Lab, starter: dict[str, str], server: ForkServer) -> None:
    assert diagnose(toy, starter, server=server)["failure"] is None
    raising = f"{starter['policy.py']}\n\ndef _forward(*_):\n    raise ValueError('x')\n\n\nHead.forward = _forward\n"
    report = diagnose(toy, {"policy.py": raising}, server=server)
    failure = report["failure"]
    assert report["ok"] is False
    assert "ValueError: x" in failure
    assert "policy.py" in failure


def finding(code: str, module: str) -> dict[str, Any]:
    return {"code": code, "location": {"module": module, "parameter": None, "step": 3}}


def test_a_finding_of_both_reports_is_kept_once() -> None:
    first = {"schema": 1, "findings": [finding("DK001", "a")], "examined": ["DK001"]}
    first["not_examined"] = [{"code": "DK103", "why": "no optimizer"}, {"code": "DK301", "why": "no loader"}]
    second = {"findings": [finding("DK001", "a"), finding("DK001", "b")], "examined": ["DK103"], "not_examined": []}
    both = merge(first, second)
    assert [one["location"]["module"] for one in both["findings"]] == ["a", "b"]
    assert both["examined"] == ["DK001", "DK103"]
    assert [one["code"] for one in both["not_examined"]] == ["DK301"]


def test_the_protections_of_this_system_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["namespaces", "signals to one process", "signals to all processes", "subreaper", "memory limit"]
    assert [one.name for one in protections()] == names
    assert all(one.promise and one.without for one in protections())
    monkeypatch.setenv("LAB_NO_NAMESPACES", "1")
    assert not {one.name: one.active for one in protections()}["namespaces"]

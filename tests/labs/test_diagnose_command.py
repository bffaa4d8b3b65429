"""`lab diagnose`: a step that raised is shown first, and never counts as a clean report."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labs.cli.show_findings import has_errors, show_findings
from labs.grading.catalog import Lab
from labs.learner.progress import read
from labs.learner.workspace import Workspace

Run = Callable[..., tuple[int, str, str]]


def test_a_step_that_raises_is_said_and_is_exit_code_1(lab_command: Run, lab: Lab, in_workspace: Workspace) -> None:
    lab_command("start", "03")
    policy = in_workspace.attempt(lab) / "policy.py"
    signature = "def unnormalise(action: Tensor, mean: Tensor, std: Tensor) -> Tensor:"
    source = policy.read_text(encoding="utf-8")
    assert signature in source
    policy.write_text(source.replace(signature, signature + '\n    raise ValueError("x")'), encoding="utf-8")
    code, out, _ = lab_command("diagnose", "03")
    said = " ".join(out.split())
    assert code == 1
    assert "ValueError: x" in said
    assert "policy.py" in said
    assert "rules were not examined" in said
    assert "finds nothing" not in said


def test_a_healthy_step_is_exit_code_0(lab_command: Run) -> None:
    lab_command("start", "03")
    code, out, _ = lab_command("diagnose", "03")
    assert code == 0
    assert "debugkit finds nothing." in out


def test_a_finding_shows_its_severity_and_counts_like_a_hint_once(
    lab_command: Run, lab: Lab, in_workspace: Workspace
) -> None:
    probe = lab.folder / "probe.py"
    crossed = probe.read_text().replace("(moved - action)", "(moved[:, :1] - action[:, 0])")
    assert crossed != probe.read_text()
    lab_command("start", "03")
    assert not read(in_workspace).progress.labs["03"].diagnosed
    probe.write_text(crossed)
    code, out, _ = lab_command("diagnose", "03")
    assert code == 1
    assert "DK002  silent-broadcast  error" in out
    assert "This counts like a hint." in out
    assert read(in_workspace).progress.labs["03"].diagnosed
    assert "counts like" not in lab_command("diagnose", "03")[1]


@pytest.mark.parametrize(("count", "said"), [(1, "1 rule was not examined"), (2, "2 rules were not examined")])
def test_the_rules_that_were_not_examined_are_counted(
    capsys: pytest.CaptureFixture[str], count: int, said: str
) -> None:
    report = {"findings": [], "failure": "It raised.", "not_examined": [{"code": "DK001", "why": "it raised"}] * count}
    show_findings(report)
    assert said in capsys.readouterr().out
    assert has_errors(report)


def test_a_finding_is_in_english_in_every_language(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template of the catalogue, such as "{number} of {name}", must not be found inside of debugkit's sentence."""
    monkeypatch.setattr("labs.locale._current", "ko")
    sentence = (
        "The 16 rows of `pixel_values` at `vision.encoder` have the size of patches of 16 × 16 pixels and are none: "
        "the pixels of one row are on 3 of the 16 squares of that size."
    )
    location = {"module": "vision.encoder", "parameter": None, "file": None, "line": None, "step": None}
    finding = {"code": "DK322", "name": "mixed-patches", "severity": "error", "message": sentence, "fix": sentence}
    show_findings({"findings": [finding | {"location": location, "caused_by": None}], "not_examined": []})
    assert " ".join(capsys.readouterr().out.split()).count(sentence) == 2

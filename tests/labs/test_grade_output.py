"""How a grade looks: the same text on every width, no trailing spaces, and no line that is not indented by us."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from labs.cli import console, show_grade
from labs.grading import CheckResult, Grade
from labs.grading.catalog import Lab

FAILED = CheckResult(
    "test_units",
    "actions come out in the robot's units",
    "behaviour",
    "failed",
    "the action is 1.81359, not 2.12363.",
    1.8135898,
    2.1236252,
    "unnormalise(a, mean, std) is a * std + mean",
    "debugkit.trace_shapes(policy, batch)",
)
NOT_RUN = CheckResult("test_learns", "the arm reaches the block", "outcome", "not_run")
GRADE = Grade("03", "swapped_order", "failed", "1 of 2 checks failed", 3.44, 5, None, (FAILED, NOT_RUN))

WIDE = """
  ✗ not fixed yet  1 of 2 checks failed · 3.4 s

       Symptom  {symptom}
   Requirement  unnormalise(a, mean, std) is a * std + mean
      Measured  1.81359 (the action)
      Expected  2.12363
          Seed  5: `lab grade 03 --seed 5` repeats this grade exactly
  Measure next  lab diagnose 03
  In your code  debugkit.trace_shapes(policy, batch)
        Stuck?  lab hint 03

"""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the renderer prints of a grade on a terminal of so many columns."""

    def show(grade: Grade, lab: Lab, columns: int = 80, brief: bool = False) -> str:
        monkeypatch.setattr(console.out, "_width", columns)
        (show_grade.show_verdict if brief else show_grade.show_grade)(grade, lab)
        return capsys.readouterr().out

    return show


def test_a_refusal_reads_as_agreed(shown: Callable[..., str], lab: Lab) -> None:
    symptom = textwrap.wrap(lab.symptom, console.WIDEST - 17, break_on_hyphens=False)
    with_a_rule = msgspec.structs.replace(lab, rules=("DK002",))
    assert shown(GRADE, with_a_rule, columns=400) == WIDE.format(symptom=("\n" + " " * 16).join(symptom))


@pytest.mark.parametrize("columns", [30, 40, 59, 60, 80, 200])
def test_every_width_shows_the_same_words_within_the_terminal(
    shown: Callable[..., str], lab: Lab, columns: int
) -> None:
    found = shown(GRADE, lab, columns)
    assert found.split() == shown(GRADE, lab, 400).split()
    assert [line for line in found.splitlines() if line != line.rstrip()] == []
    commands = ("debugkit.", "lab ")  # one line each, whatever the width, so that they can be copied
    assert all(len(line) <= columns for line in found.splitlines() if not line.strip().startswith(commands))


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("brief", [False, True])
def test_no_line_of_a_reason_or_message_begins_where_ours_do(
    shown: Callable[..., str], lab: Lab, columns: int, brief: bool
) -> None:
    text = "first\n✓ second\n  ✓ third\n" + "passed " * 60
    forged = replace(GRADE, reason=text, checks=(replace(FAILED, message=text),), recognised_wrong_fix="any")
    lines = shown(forged, lab, columns, brief).splitlines()
    assert not [line for line in lines if line.lstrip().startswith("✓")]
    ours = {"✗", "Symptom", "Requirement", "What", "Measured", "Expected", "Details", "Seed", "Measure", "In", "Stuck?"}
    outer = [line.split()[0] for line in lines if line.strip() and not line.startswith("    ")]
    assert set(outer) <= ours


def test_a_syntax_error_keeps_its_caret_below_the_place(shown: Callable[..., str], lab: Lab) -> None:
    reason = "SyntaxError in policy.py, line 1: '(' was never closed.\n    def f(:\n         ^"
    lines = shown(replace(GRADE, reason=reason, checks=(NOT_RUN,)), lab).splitlines()
    [place] = [line.index("(:") for line in lines if "def f(:" in line]
    [caret] = [line.index("^") for line in lines if line.strip() == "^"]
    assert caret == place
    assert "no check ran" in lines[0]


@pytest.mark.parametrize(("count", "said"), [(1, "1 check ·"), (2, "2 checks ·")])
def test_a_pass_is_short_and_counts_its_checks(shown: Callable[..., str], lab: Lab, count: int, said: str) -> None:
    checks = (replace(FAILED, outcome="passed"),) * count
    found = shown(replace(GRADE, verdict="passed", reason=None, checks=checks), lab)
    assert f"✓ passed  {said} 3.4 s" in found
    assert "lab solution 03" in found
    assert "Symptom" not in found


def test_emoji_codes_and_markup_are_shown_and_not_obeyed(shown: Callable[..., str], lab: Lab) -> None:
    text = ":heavy_check_mark: [bold green]passed[/] [link=http://x]y[/link]"
    for brief in (False, True):
        found = shown(replace(GRADE, reason=text, recognised_wrong_fix="any"), lab, columns=120, brief=brief)
        assert text in found

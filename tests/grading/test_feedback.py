"""What a learner reads: the whole ladder, in order, and nothing of the check's source."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from rich.console import Console

from labs.grading import CheckResult, Grade, plain_text, render
from labs.grading.catalog import Lab

FAILED = CheckResult(
    "test_the_loss",
    "The loss equals the reference",
    "behaviour",
    "failed",
    "the loss is 1.81359, not 2.12363 (off by 0.31).",
    1.8135898,
    2.1236252,
    "The loss is the mean squared error over the batch.",
    "debugkit.trace_shapes(head, batch)",
)
NOT_RUN = CheckResult("test_learns", "The head learns the sum", "outcome", "not_run")
GRADE = Grade("90", "toy_offset", "failed", "1 of 2 checks failed", 3.44, 5, None, (FAILED, NOT_RUN))

GOLDEN = """\
✗ Lab 90 · A head that settles on the mean · failed in 3.4 s

  ✗ The loss equals the reference
  · The head learns the sum  (not run)

  Symptom        The loss stops falling at the variance of the target.
  Does not hold  The loss is the mean squared error over the batch.
  Measured       1.81359
  Expected       2.12363
  In words       the loss is 1.81359, not 2.12363 (off by 0.31).
  Seed           5 (`lab grade 90 --seed 5` repeats this grade exactly)
  Measure next   lab diagnose 90
  In own code    debugkit.trace_shapes(head, batch)
  Stuck?         lab hint 90
"""


def on_terminal(grade: Grade, lab: Lab) -> str:
    console = Console(width=100, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(render(grade, lab))
    return capture.get()


def test_the_ladder_reads_as_agreed(toy: Lab) -> None:
    assert plain_text(GRADE, toy) == GOLDEN


def test_the_terminal_shows_the_same_rungs(toy: Lab) -> None:
    shown = on_terminal(GRADE, toy)
    positions = [
        shown.index(text)
        for text in ("Symptom", "Does not hold", "Measured", "Expected", "Seed", "Measure next", "lab hint 90")
    ]
    assert positions == sorted(positions)


def test_a_recognised_wrong_fix_is_told(toy: Lab) -> None:
    told = plain_text(replace(GRADE, recognised_wrong_fix="summed", reason="The loss is summed."), toy)
    assert "What happened  The loss is summed." in told


def test_a_submission_that_does_not_parse_is_told_that_and_no_symptom_or_seed(toy: Lab) -> None:
    told = plain_text(replace(GRADE, reason="policy.py does not parse.", checks=()), toy)
    assert "What happened  policy.py does not parse." in told
    assert "Symptom" not in told
    assert "Seed" not in told


def test_a_tensor_is_told_in_words_and_a_shape_as_it_is(toy: Lab) -> None:
    tensor = replace(FAILED, measured=[[0.123456789]], expected=[[0.5]])
    told = plain_text(replace(GRADE, checks=(tensor,)), toy)
    assert "Measured" not in told
    assert FAILED.message in told
    shape = replace(FAILED, measured=[2, 3], expected=[3, 2])
    assert "Measured       [2, 3]" in plain_text(replace(GRADE, checks=(shape,)), toy)


def test_where_a_silent_labs_code_raises_that_comes_first_and_the_symptom_not_at_all(toy: Lab) -> None:
    said = "loss() raised NameError: name 'x' is not defined (policy.py, line 3: x)"
    raised = replace(FAILED, raised=True, measured=None, expected=None, message=said)
    told = plain_text(replace(GRADE, checks=(raised,)), toy)
    assert f"Your code raised  {said}\n  Does not hold" in told
    assert toy.symptom not in told
    assert told.count(said) == 1
    loud = msgspec.structs.replace(toy, loudness="loud")
    assert toy.symptom in plain_text(replace(GRADE, checks=(raised,)), loud)


def test_a_pass_is_short(toy: Lab) -> None:
    passed = replace(GRADE, verdict="passed", reason=None, checks=(replace(FAILED, outcome="passed"),))
    expected = "✓ Lab 90 · A head that settles on the mean · passed in 3.4 s\n\n  ✓ The loss equals the reference\n"
    assert plain_text(passed, toy) == expected


def test_an_error_says_that_it_is_not_the_learners_fault(toy: Lab) -> None:
    told = plain_text(replace(GRADE, verdict="error", reason="No disk.", checks=()), toy)
    assert "No disk." in told
    assert "not your code's fault" in told
    assert "lab hint" not in told


@pytest.mark.parametrize("form", [plain_text, on_terminal])
def test_a_submission_cannot_draw_on_the_terminal(form: object, toy: Lab) -> None:
    forged = replace(FAILED, message="\x1b[2J\x1b]0;x\x07\r✓ passed [bold green]all[/]", measured="\x9b31m\u202e")
    shown = form(replace(GRADE, checks=(forged,)), toy)  # type: ignore[operator]
    assert not any(ord(c) < 32 and c != "\n" for c in shown)
    assert not {"\x9b", "\u202e"} & set(shown)
    assert "[bold green]" in shown, "markup is shown, not obeyed"

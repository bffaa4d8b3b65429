"""The feedback for a learner: the steps in order, each value once, and nothing of a check's source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from labs.grading import CheckResult, FeedbackStep, Grade, feedback_steps
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


def told(grade: Grade, lab: Lab) -> dict[str, str]:
    """The text of each step by its label."""
    return {step.label: step.text for step in feedback_steps(grade, lab)}


def with_check(**changes: Any) -> Grade:
    return replace(GRADE, checks=(replace(FAILED, **changes),))


def test_the_steps_go_from_the_symptom_to_the_next_measurement(toy: Lab) -> None:
    assert feedback_steps(GRADE, msgspec.structs.replace(toy, rules=("DK002",))) == (
        FeedbackStep("Symptom", "The loss stops falling at the variance of the target."),
        FeedbackStep("Requirement", "The loss is the mean squared error over the batch.", "requirement"),
        FeedbackStep("Measured", "1.81359 (the loss)", "problem"),
        FeedbackStep("Expected", "2.12363 (off by 0.31)", "expected"),
        FeedbackStep("Seed", "5: `lab grade 90 --seed 5` repeats this grade exactly", "note"),
        FeedbackStep("Measure next", "lab diagnose 90", "command"),
        FeedbackStep("In your code", "debugkit.trace_shapes(head, batch)", "command"),
        FeedbackStep("Stuck?", "lab hint 90", "command"),
    )


@pytest.mark.parametrize(
    ("instrument", "label"),
    [
        ("debugkit.trace_shapes(head, batch)", "In your code"),
        ("python -c 'print(1)'", "Measure next"),
        ("lab run 90", "Measure next"),
    ],
)
def test_lab_diagnose_is_not_suggested_for_a_lab_without_rules(instrument: str, label: str, toy: Lab) -> None:
    steps = told(with_check(instrument=instrument), msgspec.structs.replace(toy, rules=()))
    assert steps[label] == instrument
    assert "lab diagnose 90" not in steps.values()


def test_a_recognised_wrong_fix_is_named(toy: Lab) -> None:
    found = told(replace(GRADE, recognised_wrong_fix="summed", reason="The loss is summed."), toy)
    assert found["What happened"] == "The loss is summed."


def test_a_submission_that_does_not_parse_gets_that_and_no_symptom_or_seed(toy: Lab) -> None:
    assert told(replace(GRADE, reason="SyntaxError in policy.py.", checks=()), toy) == {
        "What happened": "SyntaxError in policy.py.",
        "Stuck?": "lab hint 90",
    }


def test_a_tensor_is_described_in_words_and_a_shape_is_shown(toy: Lab) -> None:
    words = "the output differs in 1 of 1 values by up to 0.4; first at [0, 0]: 0.1, not 0.5."
    tensor = told(with_check(measured=[[0.123456789]], expected=[[0.5]], message=words), toy)
    assert tensor["Measured"] == "The output: 1 of 1 values differs by up to 0.4; first at [0, 0]: 0.1, not 0.5."
    assert "Expected" not in tensor
    summary = {"shape": [9], "dtype": "float32", "first_values": [0.1, 0.2]}
    for value in (summary, {"loss": summary}, [summary]):
        told_in_words = told(with_check(measured=value, expected=1.0, message="`loss` differs."), toy)
        assert told_in_words["Measured"] == "`loss` differs."
        assert "Expected" not in told_in_words
    shape = told(with_check(measured=[2, 3], expected=[3, 2], message="the output has shape [2, 3], not [3, 2]."), toy)
    assert (shape["Measured"], shape["Expected"]) == ("[2, 3]", "[3, 2]")


@pytest.mark.parametrize(
    ("measured", "expected", "shown"),
    [
        (None, 1.5, ("None", "1.5")),
        (False, True, ("False", "True")),
        ("nan", "finite numbers", ("nan", "finite numbers")),
        (0.30000001, 0.3, ("0.30000001", "0.3")),
        (0.1 + 0.2, 0.3, ("0.30000000000000004", "0.29999999999999999")),
        ({"a": [1, None]}, {"a": [1, 0.5]}, ("{'a': [1, None]}", "{'a': [1, 0.5]}")),
    ],
)
def test_values_read_as_python_with_the_digits_that_show_the_difference(
    measured: Any, expected: Any, shown: tuple[str, str], toy: Lab
) -> None:
    found = told(with_check(measured=measured, expected=expected, message="It is wrong."), toy)
    assert (found["Measured"], found["Expected"], found["Details"]) == (*shown, "It is wrong.")


def test_the_same_text_is_not_shown_twice(toy: Lab) -> None:
    found = told(with_check(measured=2.0, expected=2.0, message="the graph of the loss is cut."), toy)
    assert found["Measured"] == "The graph of the loss is cut."
    assert not {"Expected", "Details"} & set(found)


def test_a_long_value_is_cut_between_two_words(toy: Lab) -> None:
    found = told(with_check(measured="fifteen letters " * 40, expected="nothing", message="It is long."), toy)
    assert found["Measured"].split()[-2] in ("fifteen", "letters")
    assert found["Measured"].endswith(" …")
    assert len(found["Measured"]) <= 300


def test_if_a_silent_labs_code_raises_that_comes_first_and_the_symptom_is_left_out(toy: Lab) -> None:
    what = "loss() raised NameError: name 'x' is not defined (policy.py, line 3: x)"
    raised = with_check(raised=True, measured=None, expected=None, message=what)
    steps = feedback_steps(raised, toy)
    assert [step.text for step in steps[:2]] == [what, FAILED.property]
    assert [step.text for step in steps].count(what) == 1
    assert "Symptom" not in told(raised, toy)
    loud = msgspec.structs.replace(toy, loudness="loud")
    assert told(raised, loud)["Symptom"] == toy.symptom


def test_a_pass_has_no_steps(toy: Lab) -> None:
    assert feedback_steps(replace(GRADE, verdict="passed", reason=None), toy) == ()


def test_an_error_says_that_the_learners_code_is_not_the_cause(toy: Lab) -> None:
    found = told(replace(GRADE, verdict="error", reason="No disk.", checks=()), toy)
    assert found["Problem"] == "No disk."
    assert "Your code is not the cause" in found["What to do"]
    assert "Stuck?" not in found

"""The feedback after `lab grade`: steps from the symptom to the next measurement, never the source of a check.

The steps are data. `labs.cli.show_grade` prints them, and nothing else does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from labs.grading.catalog import Lab
from labs.grading.grades import CheckResult, Grade
from labs.grading.submission_text import shorten

Role = Literal["text", "requirement", "problem", "expected", "note", "command"]
_LONGEST_VALUE = 300


@dataclass(frozen=True)
class FeedbackStep:
    """One labelled step. `role` says what the text is; a `command` is printed on one line, to be copied."""

    label: str
    text: str
    role: Role = "text"


def feedback_steps(grade: Grade, lab: Lab) -> tuple[FeedbackStep, ...]:
    """The steps in order; none for a pass."""
    if grade.verdict == "passed":
        return ()
    if grade.verdict == "error":
        return (
            FeedbackStep("Problem", grade.reason or "The grader gave no reason.", "problem"),
            FeedbackStep("What to do", f"Your code is not the cause. {_WHAT_TO_DO}"),
        )
    stuck = FeedbackStep("Stuck?", f"lab hint {lab.id}", "command")
    failed = grade.failed_checks[0] if grade.failed_checks else None
    if failed is None and grade.recognised_wrong_fix is None:
        # Nothing ran, for example after a syntax error: the symptom and the seed have no part in it.
        return (FeedbackStep("What happened", grade.reason or "", "problem"), stuck)
    # If a silent lab's code raises, the learner's edit is the reason, and the lab's symptom would mislead.
    broken = failed if failed is not None and failed.raised and lab.loudness == "silent" else None
    steps = [FeedbackStep("Symptom", lab.symptom)]
    if broken is not None:
        steps = [FeedbackStep("What happened", broken.message, "problem")]
    if failed is not None:
        steps += [FeedbackStep("Requirement", failed.property, "requirement")]
    if grade.recognised_wrong_fix is not None:
        steps += [FeedbackStep("What happened", grade.reason or "", "problem")]
    if failed is not None and broken is None:
        steps += _measurements(failed)
    repeat = f"{grade.seed}: `lab grade {lab.id} --seed {grade.seed}` repeats this grade exactly"
    steps += [FeedbackStep("Seed", repeat, "note")]
    if failed is not None:
        steps += _instrument(failed, lab)
    return (*steps, stuck)


_WHAT_TO_DO = "`lab doctor` checks this machine. If it finds nothing, please report this as a bug of the lab."


def _instrument(failed: CheckResult, lab: Lab) -> list[FeedbackStep]:
    """What to measure with: a command that runs as printed, and the call that does the same in a project."""
    if failed.instrument.startswith("lab "):
        return [FeedbackStep("Measure next", failed.instrument, "command")]
    return [
        FeedbackStep("Measure next", f"lab diagnose {lab.id}", "command"),
        FeedbackStep("In your code", failed.instrument, "command"),
    ]


def _measurements(check: CheckResult) -> list[FeedbackStep]:
    """What was measured and what was expected, and the message if it says more than the two values."""
    measured, expected = _told_apart(check.measured, check.expected)
    in_words_only = any(_is_array(value) for value in (check.measured, check.expected)) or measured == expected
    if in_words_only and check.message:
        return [FeedbackStep("Measured", _sentence(check.message), "problem")]
    words = check.message
    usual = re.fullmatch(_USUAL_WORDS.format(re.escape(measured), re.escape(expected)), words, re.IGNORECASE)
    if usual is not None:
        measured, expected, words = f"{measured} ({usual[1]})", f"{expected}{usual[2] or ''}", ""
    steps = [FeedbackStep("Measured", measured, "problem"), FeedbackStep("Expected", expected, "expected")]
    return [*steps, FeedbackStep("Details", _sentence(words))] if words else steps


def _sentence(words: str) -> str:
    """With a capital letter, unless it may begin with a name from code."""
    return f"{words[:1].upper()}{words[1:]}" if words.startswith(("the ", "after ", "in ", "with ")) else words


_USUAL_WORDS = r"(.+(?<!: this)) is {0}(?:, not |; expected ){1}( \(off by \S+\))?\."
"""A message of `expect` that says no more than the two values: `the loss is 1.8, not 2.1 (off by 0.3).`"""


def _is_array(value: Any) -> bool:
    """Whether it holds a tensor's numbers, which are hard to read: the message names the first that differs."""
    if isinstance(value, dict):
        return list(value) == _TENSOR or any(map(_is_array, value.values()))
    return isinstance(value, list) and (len(value) > 4 or any(isinstance(item, list | dict) for item in value))


_TENSOR = ["shape", "dtype", "first_values"]
"""The keys of a tensor, as `grades.plain` summarises it."""


def _told_apart(measured: Any, expected: Any) -> tuple[str, str]:
    """Both values as text, with as many digits as it takes to see a difference; equal texts if there is none."""
    for digits in (6, 9, 17):
        texts = _value(measured, digits), _value(expected, digits)
        if texts[0] != texts[1]:
            break
    return shorten(texts[0], _LONGEST_VALUE), shorten(texts[1], _LONGEST_VALUE)


def _value(value: Any, digits: int) -> str:
    """A measured value as Python would print it, with floats rounded. Text stays as it is."""
    if isinstance(value, str):
        return value
    return _literal(value, lambda number: f"{number:.{digits}g}")


def _literal(value: Any, rounded: Callable[[float], str]) -> str:
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, list):
        return f"[{', '.join(_literal(item, rounded) for item in value)}]"
    if isinstance(value, dict):
        if list(value) == _TENSOR:
            first = _literal(value["first_values"], rounded)
            return f"{value['dtype']} tensor of shape {value['shape']}, first values {first}"
        return f"{{{', '.join(f'{key!r}: {_literal(item, rounded)}' for key, item in value.items())}}}"
    return repr(value)

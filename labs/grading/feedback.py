"""The feedback after `lab grade`: steps from the symptom to the next measurement, never the source of a check.

The steps are data. `labs.cli.show_grade` prints them, and nothing else does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labs.grading.catalog import Lab
from labs.grading.comparison import compare
from labs.grading.grades import CheckResult, Grade

Role = Literal["text", "requirement", "problem", "expected", "note", "command", "place"]


@dataclass(frozen=True)
class FeedbackStep:
    """One labelled step. `role` says what the text is; a `command` or `place` is printed on one line."""

    label: str
    text: str
    role: Role = "text"


def feedback_steps(grade: Grade, lab: Lab, *, diagnosis: bool = True) -> tuple[FeedbackStep, ...]:
    """The steps in order; none for a pass. Without `diagnosis`, no step suggests `lab diagnose`."""
    if grade.verdict == "passed":
        return ()
    if grade.verdict == "error":
        return (
            FeedbackStep("Problem", grade.reason or "The grader gave no reason.", "problem"),
            FeedbackStep("What to do", f"Your code is not the cause. {_WHAT_TO_DO}"),
        )
    stuck = FeedbackStep("Stuck?", f"lab hint {lab.id}", "command")
    answers = [FeedbackStep("Answer", text, "problem") for text in _told_of_answers(grade)]
    failed = next((one for one in grade.failed_checks if one.kind != "answer"), None)
    if failed is None and answers:
        return (*answers, stuck)  # the code is correct, so the symptom is gone and there is nothing to repeat
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
        steps += [step for step in _instrument(failed, lab) if diagnosis or not step.text.startswith("lab diagnose")]
    return (*steps, *answers, stuck)


def _told_of_answers(grade: Grade) -> list[str]:
    """What is wrong with each answer; a problem of the whole file once."""
    failed = [one for one in grade.failed_checks if one.kind == "answer"]
    of_the_file = len(failed) > 1 and len({one.message for one in failed}) == 1
    return [failed[0].message] if of_the_file else [one.message for one in failed]


_WHAT_TO_DO = "`lab doctor` checks this machine. If it finds nothing, please report this as a bug of the lab."


def _instrument(failed: CheckResult, lab: Lab) -> list[FeedbackStep]:
    """What to measure with: a command that runs as printed, and the call that does the same in a project.

    A lab without rules is one in which debugkit finds nothing: `lab diagnose` is not suggested.
    """
    if failed.instrument.startswith("lab "):
        return [FeedbackStep("Measure next", failed.instrument, "command")]
    if not lab.rules:
        label = "Measure next" if failed.instrument.startswith("python ") else "In your code"
        return [FeedbackStep(label, failed.instrument, "command")]
    return [
        FeedbackStep("Measure next", f"lab diagnose {lab.id}", "command"),
        FeedbackStep("In your code", failed.instrument, "command"),
    ]


def _measurements(check: CheckResult) -> list[FeedbackStep]:
    found = compare(check.measured, check.expected, check.message)
    steps = [FeedbackStep("Measured", found.measured, "problem")]
    if found.expected is not None:
        steps += [FeedbackStep("Expected", found.expected, "expected")]
    return [*steps, FeedbackStep("Details", found.details)] if found.details else steps

"""A capstone's grade in parts: one line for each fault, and one for what the project must keep doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from labs.capstones.capstone import Capstone
from labs.capstones.parts import State, outcomes_of, promises_kept, promises_of, states_of
from labs.cli.console import OUTCOME_MARKS, mark, print_hanging
from labs.grading.catalog import Lab
from labs.locale import message, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from labs.grading.feedback import FeedbackStep
    from labs.grading.grades import CheckResult, Grade

MARKS = {"gone": "passed", "there": "failed", "not judged": "not_run"}


def show_faults(grade: Grade, lab: Lab, show_check: Callable[[CheckResult], None]) -> None:
    """Which faults are gone, in the order in which they come to light; after a pass, what each of them was."""
    assert isinstance(lab, Capstone)
    for number, (fault, state) in enumerate(zip(lab.faults, states_of(lab, grade), strict=True), start=1):
        told = Text(_of_a_fault(lab, number, state))
        if grade.passed:
            told = Text.assemble(told, "  ", (translated(fault.what), "quiet"))
        _show(state, told)
    if lab.kind == "review":  # nothing is run, so nothing can have stopped working
        for check in promises_of(lab, grade):
            show_check(check)
        return
    promises = {
        "gone": translated("what worked before still works"),
        "there": translated("something that worked before does not work any more"),
        "not judged": translated("what worked before cannot be judged yet"),
    }
    state = promises_kept(lab, grade)
    _show(state, Text(promises[state]))
    for check in outcomes_of(lab, grade):
        show_check(check)


def _of_a_fault(capstone: Capstone, number: int, state: State) -> str:
    if capstone.kind == "review":
        return {
            "gone": message("fault {number} is found", number=number),
            "there": message("fault {number} is not found yet", number=number),
            "not judged": message("fault {number} cannot be judged yet", number=number),
        }[state]
    return {
        "gone": message("fault {number} is gone", number=number),
        "there": message("fault {number} is still there", number=number),
        "not judged": message("fault {number} cannot be judged yet", number=number),
    }[state]


KEPT = ("Seed", "Answer", "Stuck?")


def without_the_fault(steps: Sequence[FeedbackStep], grade: Grade, lab: Lab) -> tuple[FeedbackStep, ...]:
    """The feedback, without what a check of a fault requires and measured: to find that is the task.

    What the learner's own edit broke, or raised, is shown whole.
    """
    assert isinstance(lab, Capstone)
    of_a_fault = {name for fault in lab.faults for name in fault.checks}
    first = next((check for check in grade.failed_checks if check.kind != "answer"), None)
    if first is None or first.raised or first.id not in of_a_fault or grade.recognised_wrong_fix is not None:
        return tuple(steps)
    return tuple(step for step in steps if step.label in KEPT)


def _show(state: State, told: Text) -> None:
    print_hanging(Text.assemble("  ", mark(OUTCOME_MARKS, MARKS[state]), " "), told)

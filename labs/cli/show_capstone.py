"""A capstone's grade in parts: one line for each fault, and one for what the project must keep doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from labs.capstones.parts import State, outcomes_of, promises_kept, promises_of, states_of
from labs.cli.console import OUTCOME_MARKS, mark, print_hanging
from labs.locale import message, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from labs.capstones.capstone import Capstone
    from labs.grading.feedback import FeedbackStep
    from labs.grading.grades import CheckResult, Grade

MARKS = {"gone": "passed", "there": "failed", "not judged": "not_run"}


def show_faults(grade: Grade, capstone: Capstone, show_check: Callable[[CheckResult], None]) -> None:
    """Which faults are gone, in the order in which they come to light; after a pass, what each of them was."""
    for number, (fault, state) in enumerate(zip(capstone.faults, states_of(capstone, grade), strict=True), start=1):
        told = Text(_of_a_fault(capstone, number, state))
        if grade.passed:
            told = Text.assemble(told, "  ", (translated(fault.what), "quiet"))
        _show(state, told)
    if capstone.kind == "review":  # nothing is run, so nothing can have stopped working
        for check in promises_of(capstone, grade):
            show_check(check)
        return
    promises = {
        "gone": translated("what worked before still works"),
        "there": translated("something that worked before does not work any more"),
        "not judged": translated("what worked before cannot be judged yet"),
    }
    state = promises_kept(capstone, grade)
    _show(state, Text(promises[state]))
    for check in outcomes_of(capstone, grade):
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


def without_the_fault(steps: Sequence[FeedbackStep], grade: Grade, capstone: Capstone) -> tuple[FeedbackStep, ...]:
    """The feedback, without what a check of a fault requires and measured: to find that is the task.

    What the learner's own edit broke, or raised, is shown whole.
    """
    first = next((check for check in grade.failed_checks if check.kind != "answer"), None)
    is_told = first is None or first.raised or first.id not in capstone.checks_of_faults
    if is_told or grade.recognised_wrong_fix is not None:
        return tuple(steps)
    return tuple(step for step in steps if step.label in KEPT)


def _show(state: State, told: Text) -> None:
    print_hanging(Text.assemble("  ", mark(OUTCOME_MARKS, MARKS[state]), " "), told)

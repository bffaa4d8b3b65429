"""A capstone's grade in parts: which faults are gone, and whether the rest still works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from labs.capstones.capstone import Capstone

if TYPE_CHECKING:
    from labs.grading.grades import CheckResult, Grade

State = Literal["gone", "there", "not judged"]


def states_of(capstone: Capstone, grade: Grade) -> list[State]:
    """The state of each fault, in order.

    A fault is there if one of its checks failed because of what it measured. Where no check failed but one did not run,
    or where the code raised before anything was measured, nothing is known of the fault yet.
    """
    by_id = {check.id: check for check in grade.checks}
    return [_state([by_id[name] for name in fault.checks if name in by_id]) for fault in capstone.faults]


def promises_kept(capstone: Capstone, grade: Grade) -> State:
    """The structural checks that belong to no fault: `gone` stands for "nothing is broken"."""
    return _state(promises_of(capstone, grade))


def promises_of(capstone: Capstone, grade: Grade) -> list[CheckResult]:
    """The structural checks that belong to no fault."""
    return [check for check in _of_no_fault(capstone, grade) if check.kind != "outcome"]


def outcomes_of(capstone: Capstone, grade: Grade) -> list[CheckResult]:
    """The outcome checks that belong to no fault: all faults together decide them."""
    return [check for check in _of_no_fault(capstone, grade) if check.kind == "outcome"]


def _of_no_fault(capstone: Capstone, grade: Grade) -> list[CheckResult]:
    of_a_fault = capstone.checks_of_faults
    return [check for check in grade.checks if check.id not in of_a_fault and check.kind != "answer"]


def faults_document(capstone: Capstone, grade: Grade) -> list[dict[str, Any]]:
    """The JSON form: the number of each fault and its state."""
    return [
        {"fault": number, "state": state.replace(" ", "_")}
        for number, state in enumerate(states_of(capstone, grade), start=1)
    ]


def _state(checks: Sequence[CheckResult]) -> State:
    if any(check.outcome == "failed" and not check.raised for check in checks):
        return "there"
    if not checks or any(check.outcome != "passed" for check in checks):
        return "not judged"
    return "gone"

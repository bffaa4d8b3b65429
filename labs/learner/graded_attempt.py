"""Grades a learner's attempt and records the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from labs.grading.catalog import Lab
from labs.grading.grader import grade
from labs.grading.grades import CheckResult, Grade
from labs.learner import progress
from labs.learner.checks_hash import checks_hash
from labs.learner.workspace import Workspace, WorkspaceError


def grade_attempt(
    workspace: Workspace,
    lab: Lab,
    *,
    seed: int | None = None,
    all_checks: bool = False,
    on_check: Callable[[CheckResult], None] | None = None,
    server: Any = None,
) -> tuple[Grade, str | None]:
    """Grade a started attempt and record it; the string is a notice about the progress file, if there is one.

    `server` is a running ForkServer. A fault of the grader is not recorded. A grade that cannot be recorded counts all
    the same, with a notice. Raises MissingExtraError, KeyboardInterrupt.
    """
    done = grade(lab, workspace.attempt(lab), seed=seed, all_checks=all_checks, on_check=on_check, server=server)
    return done, record_grade(workspace, lab, done)


def record_grade(workspace: Workspace, lab: Lab, done: Grade) -> str | None:
    """Record a grade, unless the grader failed; a notice about the progress file, if there is one."""
    if done.verdict == "error":
        return None
    passed, now = done.verdict == "passed", datetime.now(UTC)
    try:
        change = progress.graded(lab.id, passed, now, done.recognised_wrong_fix, checks_hash(lab) if passed else "")
        notice = progress.record(workspace, change).notice
        if passed:
            workspace.keep_passed(lab)
        return notice
    except (progress.ProgressError, WorkspaceError) as error:
        why = str(error)
    except OSError as error:
        why = f"{error.filename or workspace.state}: {error.strerror or error}."
    return f"This grade is not recorded in your progress. {why}"


_NOT_OF_THE_GRADE = ("faults", "content")
"""What a document adds: a capstone's faults, from its checks, and the hash of the lab."""


def grade_from_json(document: Mapping[str, Any]) -> Grade:
    """The grade of one lab, from its part of another process's JSON document."""
    parts = {key: value for key, value in document.items() if key not in _NOT_OF_THE_GRADE}
    checks = tuple(CheckResult(**check) for check in parts.pop("checks"))
    return Grade(**parts, checks=checks)

"""The demo: one lab from the symptom to a passing grade, in a temporary workspace.

Each stage checks its own result, so the demo is also a test of the whole installation.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.grading.catalog import Lab
from labs.grading.grades import CheckResult, Grade
from labs.learner.diff import diff_from_starter
from labs.learner.workspace import Workspace, make_workspace

DEMO_LAB = "03"


@dataclass(frozen=True)
class Stage:
    """One stage, and whether it gave the expected result. One of the last four fields is filled."""

    name: str
    as_expected: bool
    output: str = ""
    grade: Grade | None = None
    report: dict[str, Any] | None = None
    diff: tuple[str, ...] = ()


def play(
    lab: Lab, announce: Callable[[str], None], on_check: Callable[[CheckResult], None] | None = None
) -> Iterator[Stage]:
    """Run the stages symptom, refused, diagnosed, fixed and passed; `announce` gets each name before the stage begins.

    The workspace is removed at the end, on an exception too. Raises what grading raises.
    """
    from labs.grading import ForkServer, diagnose, grade, run_symptom

    with tempfile.TemporaryDirectory(prefix="lab-demo-") as folder, ForkServer() as server:
        workspace = Workspace(Path(folder).resolve())
        make_workspace(workspace.root)
        workspace.start(lab)
        attempt = workspace.attempt(lab)

        announce("symptom")
        printed = run_symptom(lab, attempt, io.StringIO(), server=server).output
        yield Stage("symptom", bool(printed.strip()), output=printed)

        announce("refused")
        refused = grade(lab, attempt, seed=0, on_check=on_check, server=server)
        yield Stage("refused", refused.verdict == "failed", grade=refused)

        announce("diagnosed")
        report = diagnose(lab, attempt, server=server)
        found = {finding["code"] for finding in report["findings"]}
        yield Stage("diagnosed", bool(found) and set(lab.rules) <= found, report=report)

        announce("fixed")
        for name in lab.editable:
            shutil.copyfile(lab.solution / name, attempt / name)
        changes = tuple(diff_from_starter(lab, attempt, "fixed"))
        yield Stage("fixed", bool(changes), diff=changes)

        announce("passed")
        passed = grade(lab, attempt, seed=0, on_check=on_check, server=server)
        yield Stage("passed", passed.verdict == "passed", grade=passed)

"""The checks of a learner's labs as tests: `lab export --vscode` writes a test file that an editor's explorer reads.

Each started lab is a class, and each check and question of it a test. The first test of a lab grades it, as
`lab grade` does, in a process of its own; the others show the outcome of their check.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labs.grading.catalog import Lab, all_labs
from labs.grading.runner import declared_by
from labs.learner.workspace import Workspace, resolve


def lab_tests(near: str) -> dict[str, type]:
    """A test class for each started lab of the workspace that a command run beside the file `near` would use."""
    workspace = resolve(start=Path(near).parent)
    return {_class_name(lab): _tests_of(lab, workspace) for lab in all_labs() if workspace.is_started(lab)}


def _tests_of(lab: Lab, workspace: Workspace) -> type:
    @functools.cache
    def outcomes() -> dict[str, dict[str, Any]]:
        return _graded(lab, workspace)

    names = [*(check.id for check in declared_by(lab).checks), *(f"test_{one.id}" for one in lab.questions)]
    return type(_class_name(lab), (), {"__doc__": lab.title, **{name: _test(name, outcomes) for name in names}})


def _test(name: str, outcomes: Callable[[], dict[str, dict[str, Any]]]) -> Callable[[Any], None]:
    def test(_self: Any) -> None:
        found = outcomes()
        if "" in found:
            pytest.fail(found[""]["message"], pytrace=False)
        one = found[name]
        if one["outcome"] == "not_run":
            pytest.skip(one["message"] or "A check above failed.")
        if one["outcome"] != "passed":
            pytest.fail(f"{one['title']}\n{one['message']}", pytrace=False)

    test.__name__ = name
    return test


def _graded(lab: Lab, workspace: Workspace) -> dict[str, dict[str, Any]]:
    """Each check's part of the JSON document, by its test's name; under "" why there is none."""
    command = [sys.executable, "-m", "labs.cli", "grade", lab.id, "--json", "--workspace", str(workspace.root)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    try:
        document = json.loads(done.stdout)
        (grade,) = document["labs"]
    except ValueError:
        return {"": {"message": done.stderr.strip() or f"`lab grade {lab.id}` gave no result."}}
    checks = {f"test_{one['id']}" if one["kind"] == "answer" else one["id"]: one for one in grade["checks"]}
    if grade["verdict"] == "error" or all(one["outcome"] == "not_run" for one in checks.values()):
        return {"": {"message": grade["reason"]}}
    return checks


def _class_name(lab: Lab) -> str:
    return f"TestLab{lab.id}{lab.slug.title().replace('_', '')}"

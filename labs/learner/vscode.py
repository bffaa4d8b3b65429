"""Files for VS Code: tasks that grade, run and watch the lab of the open file, and its checks in the tests explorer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from labs.grading.errors import UsageError
from labs.learner.atomic_file import write_atomically

PLACE = r"^\s+(?:Place  )?(/.+?):(\d+): (.+)$"
"""The line of a refused grade that names a place: path, line and message. Python and JavaScript read it alike."""
BEGINS, WAITS = r"^  \d\d · ", r"^  waiting for you to save"
"""The lines of `lab watch` with which a grade begins and ends."""
TESTS = "test_labs.py"

_TESTS_TEXT = '''"""The checks of your labs, for the tests explorer. `lab export --vscode` wrote this file."""

from labs.learner.explorer import lab_tests

globals().update(lab_tests(__file__))
'''
_MATCHER: dict[str, Any] = {
    "owner": "lab",
    "source": "lab",
    "fileLocation": "absolute",
    "severity": "error",
    "pattern": {"regexp": PLACE, "file": 1, "line": 2, "message": 3},
}
SETTINGS: dict[str, Any] = {
    "python.testing.pytestEnabled": True,
    "python.testing.unittestEnabled": False,
    "python.testing.pytestArgs": [TESTS],
}
EXTENSIONS = ("ms-python.python",)


def tasks() -> list[dict[str, Any]]:
    """The tasks. Each runs the interpreter that is chosen in VS Code, in the open file's folder."""
    watching = {"activeOnStart": True, "beginsPattern": BEGINS, "endsPattern": WAITS}
    return [
        _task("grade", {"kind": "test", "isDefault": True}, {"problemMatcher": [_MATCHER]}),
        _task("run", {"kind": "none"}, {"problemMatcher": []}),
        _task(
            "watch",
            {"kind": "none"},
            {"isBackground": True, "problemMatcher": [_MATCHER | {"background": watching}]},
        ),
    ]


def write_vscode(folder: Path) -> list[Path]:
    """Write or complete the files in `folder`; returns those that changed. What a user wrote there stays.

    Raises UsageError if a file there is not plain JSON or Python of ours, and then nothing is written; OSError.
    """
    at = folder / ".vscode"
    made = {
        at / "tasks.json": _completed(at / "tasks.json", _with_tasks),
        at / "settings.json": _completed(at / "settings.json", lambda known: SETTINGS | known),
        at / "extensions.json": _completed(at / "extensions.json", _with_extensions),
        folder / TESTS: _TESTS_TEXT,
    }
    tests = folder / TESTS
    if tests.exists() and tests.read_text(encoding="utf-8") != _TESTS_TEXT:
        raise UsageError(f"{tests} exists and is yours, and nothing was written. Choose another folder.")
    changed = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    folders = [one for one in (at, *at.parents) if not one.exists()]
    before = {path: path.read_bytes() if path.exists() else None for path in changed}
    try:
        at.mkdir(parents=True, exist_ok=True)
        for path in changed:
            write_atomically(path, made[path].encode())
    except OSError:
        _put_back(before, folders)
        raise
    return changed


def _put_back(before: Mapping[Path, bytes | None], folders: Sequence[Path]) -> None:
    """After a failure: the files as they were, and no folder that was not there. As far as the disk permits it."""
    for path, content in before.items():
        with contextlib.suppress(OSError):
            if content is None:
                path.unlink(missing_ok=True)
            elif path.read_bytes() != content:
                write_atomically(path, content)
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _task(verb: str, group: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "label": f"lab: {verb}",
        "detail": f"lab {verb}, with the lab of the open file",
        "type": "process",
        "command": "${command:python.interpreterPath}",
        "args": ["-m", "labs.cli", verb, "${file}"],
        "options": {"cwd": "${fileDirname}"},
        "group": group,
        "presentation": {"clear": True, "panel": "dedicated"},
        **more,
    }


def _completed(path: Path, complete: Any) -> str:
    known: Any = {}
    if path.exists():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            known = None
        if not isinstance(known, dict):
            raise UsageError(f"{path} is not plain JSON, and nothing was written. Remove its comments, or move it.")
    return json.dumps(complete(known), indent=2, ensure_ascii=False) + "\n"


def _with_tasks(known: dict[str, Any]) -> dict[str, Any]:
    ours = tasks()
    labels = {task["label"] for task in ours}
    theirs = [task for task in known.get("tasks", []) if task.get("label") not in labels]
    return {"version": "2.0.0"} | known | {"tasks": [*theirs, *ours]}


def _with_extensions(known: dict[str, Any]) -> dict[str, Any]:
    wanted: Iterable[str] = known.get("recommendations", [])
    return known | {"recommendations": [*wanted, *(one for one in EXTENSIONS if one not in wanted)]}

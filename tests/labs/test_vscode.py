"""Files for VS Code, the place in a refusal, and the checks as tests."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shared_server
from child_processes import run, started
from labs.grading import CheckResult, Grade
from labs.grading.catalog import Lab
from labs.learner import vscode
from labs.learner.place import place_of
from labs.learner.vscode import BEGINS, PLACE, TESTS, WAITS
from labs.learner.workspace import Workspace
from shared_server import SharedServer

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

LabCommand = Callable[..., tuple[int, str, str]]
FAULTS = {
    "syntax": ("def broken(:\n", 19, "SyntaxError in policy.py, line 19: invalid syntax."),
    "import": ("\nraise RuntimeError('too early')\n", 20, "Importing your code raised RuntimeError: too early"),
    "not-utf-8": ("# \udcff\n", 19, "policy.py is not UTF-8 text (line 19). Save it as UTF-8 and grade again."),
}


@pytest.mark.parametrize("fails_at", range(4))
def test_an_export_that_fails_leaves_nothing_behind(
    fails_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "kept" / ".vscode" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"mine": 1}')
    written: list[Path] = []

    def write(path: Path, content: bytes) -> None:
        if len(written) == fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
        path.write_bytes(content)

    for folder, left in ((tmp_path / "new" / "deep", []), (tmp_path / "kept", [settings])):
        written.clear()
        monkeypatch.setattr(vscode, "write_atomically", write)
        with pytest.raises(OSError, match="No space left"):
            vscode.write_vscode(folder)
        assert [path for path in folder.rglob("*") if path.is_file()] == left
    assert not (tmp_path / "new").exists()


@pytest.fixture
def attempt(in_workspace: Workspace, lab: Lab, lab_command: LabCommand) -> Path:
    """The learner's file of the started lab, which has 18 lines."""
    lab_command("start", "03")
    path = in_workspace.attempt(lab) / "policy.py"
    text = path.read_text().rstrip("\n")
    path.write_text(text + "\n" * (18 - text.count("\n")))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("added", "line", "message"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("columns", [50, 80])
def test_the_problem_matcher_reads_the_place_in_a_real_refusal(
    lab_command: LabCommand,
    attempt: Path,
    monkeypatch: pytest.MonkeyPatch,
    added: str,
    line: int,
    message: str,
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = attempt.read_text()
    attempt.write_text(text + added, errors="surrogateescape")
    code, out, _ = lab_command("grade", str(attempt))
    assert code == 1
    found = [re.match(PLACE, one) for one in out.splitlines()]
    assert [one.groups() for one in found if one] == [(str(attempt), str(line), message)]


@pytest.mark.slow
def test_a_wrong_result_has_no_place(lab_command: LabCommand, attempt: Path) -> None:
    code, out, _ = lab_command("grade", "03")
    assert code == 1
    assert "Place" not in out


def test_a_place_is_of_the_innermost_line_and_of_an_editable_file_only(lab: Lab, tmp_path: Path) -> None:
    def place(message: str) -> str | None:
        check = CheckResult("test_a", "A", "behaviour", "failed", message)
        found = place_of(Grade("03", lab.slug, "failed", None, 0.0, 0, checks=(check,)), lab, tmp_path)
        return found and str(found)

    raised = "f raised KeyError: policy.py, line 9 (policy.py, line 4: return x[1])"
    assert place(raised) == f"{tmp_path}/policy.py:4: f raised KeyError: policy.py, line 9"
    assert place("f raised KeyError: a (other_policy.py, line 4: x)") is None
    assert place("The loss is 3.") is None


def test_the_files_are_json_and_a_second_export_changes_nothing(
    lab_command: LabCommand, in_workspace: Workspace
) -> None:
    code, out, _ = lab_command("export", "--vscode")
    assert code == 0
    assert out.count("written") == 4
    at = in_workspace.root / ".vscode"
    tasks = json.loads((at / "tasks.json").read_text())
    assert tasks["version"] == "2.0.0"
    assert [task["args"][2:] for task in tasks["tasks"]] == [[verb, "${file}"] for verb in ("grade", "run", "watch")]
    assert json.loads((at / "settings.json").read_text())["python.testing.pytestArgs"] == [TESTS]
    assert json.loads((at / "extensions.json").read_text()) == {"recommendations": ["ms-python.python"]}
    assert "Nothing changed." in lab_command("export", "--vscode")[1]
    assert lab_command("export")[0] == 2


def test_what_a_user_wrote_there_stays(lab_command: LabCommand, in_workspace: Workspace) -> None:
    at = in_workspace.root / ".vscode"
    at.mkdir()
    mine = {"label": "mine", "type": "shell", "command": "true"}
    (at / "tasks.json").write_text(json.dumps({"version": "2.0.0", "tasks": [mine]}))
    (at / "settings.json").write_text(json.dumps({"python.testing.pytestArgs": ["tests"], "editor.rulers": [88]}))
    (at / "extensions.json").write_text(json.dumps({"recommendations": ["me.mine"]}))
    assert lab_command("export", "--vscode")[0] == 0
    tasks = json.loads((at / "tasks.json").read_text())["tasks"]
    assert [task["label"] for task in tasks] == ["mine", "lab: grade", "lab: run", "lab: watch"]
    settings = json.loads((at / "settings.json").read_text())
    assert (settings["editor.rulers"], settings["python.testing.pytestArgs"]) == ([88], ["tests"])
    assert json.loads((at / "extensions.json").read_text())["recommendations"] == ["me.mine", "ms-python.python"]


@pytest.mark.parametrize("name", [".vscode/settings.json", TESTS])
def test_a_file_that_cannot_be_completed_stops_the_export(
    lab_command: LabCommand, in_workspace: Workspace, name: str
) -> None:
    path = in_workspace.root / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("// a comment\n{}\n")
    before = sorted(in_workspace.root.rglob("*"))
    code, _, said = lab_command("export", "--vscode")
    assert code == 2
    assert "nothing was written" in said
    assert sorted(in_workspace.root.rglob("*")) == before


@pytest.mark.extended
def test_the_tests_explorer_shows_every_check(
    lab_command: LabCommand, attempt: Path, in_workspace: Workspace, lab: Lab, server: SharedServer
) -> None:
    lab_command("export", "--vscode")
    command, options = shared_server.command(server, "import pytest; raise SystemExit(pytest.main())")
    command += ["-p", "no:cacheprovider", "-rA", TESTS]
    refused = run(command, cwd=in_workspace.root, **options).stdout
    name = f"{TESTS}::TestLab03SwappedOrder"
    assert f"FAILED {name}::test_equals_the_reference" in refused
    assert "actions come out in the robot's units" in refused
    assert "action * std + mean, rtol" not in refused
    assert "1 skipped" in refused
    attempt.write_bytes((lab.solution / "policy.py").read_bytes())
    passed = run(command, cwd=in_workspace.root, **options)
    assert passed.returncode == 0
    for check in ("test_equals_the_reference", "test_round_trip", "test_reaches"):
        assert f"PASSED {name}::{check}" in passed.stdout
    listed = json.loads(lab_command("list", "--json")[1])
    assert listed["labs"][0]["status"] == "passed"


@pytest.mark.slow
def test_the_watch_task_knows_when_a_grade_begins_and_ends(
    attempt: Path, lab_process: tuple[list[str], dict[str, Any]]
) -> None:
    command, options = lab_process
    seen = []
    options |= {"cwd": attempt.parent, "text": True, "stdin": -3, "stdout": -1, "stderr": -3}
    with started([*command, "watch", str(attempt)], **options) as process:
        for line in process.stdout or ():
            seen += [name for name, pattern in (("begins", BEGINS), ("waits", WAITS)) if re.match(pattern, line)]
            if "waits" in seen:
                break
    assert seen == ["begins", "waits"]


def test_a_path_names_its_lab_in_every_command(lab_command: LabCommand, attempt: Path) -> None:
    assert lab_command("diff", str(attempt))[0] == 0
    assert lab_command("hint", os.path.relpath(attempt))[0] in (0, 2)
    code, _, said = lab_command("diff", "./nothing/here.py")
    assert code == 2
    assert "There is no lab" in said
    assert shlex.split(said)

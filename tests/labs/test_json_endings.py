"""`lab grade --json` prints exactly one document on stdout, however it ends; a start that fails is tried once more."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labs.grading import ForkServer, SandboxError
from labs.grading.catalog import Lab
from labs.grading.sandbox import launch
from labs.grading.sandbox.launch import ColdLauncher
from labs.learner import progress
from labs.learner.workspace import Workspace

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.slow


def one_document(printed: tuple[int, str, str], code: int) -> dict[str, Any]:
    """The document, after what holds for every end."""
    assert printed[0] == code, printed
    assert printed[1].count("\n") == 1
    document = json.loads(printed[1])
    assert document["schema"] == 1
    assert isinstance(document["labs"], list)
    assert document["labs"] or document["error"]
    assert "Traceback" not in printed[2]
    return document


@pytest.fixture
def solved(in_workspace: Workspace, lab: Lab) -> Lab:
    """The fixture lab, started and with its solution in the workspace."""
    in_workspace.start(lab)
    shutil.copy(lab.solution / "policy.py", in_workspace.attempt(lab) / "policy.py")
    return lab


@pytest.fixture
def attempts(cold_start: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each start of a sandbox."""
    started: list[str] = []
    start = ColdLauncher.launch

    def counted(launcher: ColdLauncher, job: dict[str, Any]) -> Any:
        started.append("cold")
        return start(launcher, job)

    monkeypatch.setattr(ColdLauncher, "launch", counted)
    return started


def test_a_sandbox_that_ends_at_once_is_started_twice_and_then_explained(
    lab_command: Run, solved: Lab, attempts: list[str], monkeypatch: pytest.MonkeyPatch, in_workspace: Workspace
) -> None:
    ending = [sys.executable, "-c", "raise SystemExit('no room left for\\x1b[2J another process')"]
    monkeypatch.setattr(launch, "python_command", lambda *_: ending)
    [only] = one_document(lab_command("grade", "03", "--json"), 3)["labs"]
    assert (only["verdict"], attempts) == ("error", ["cold", "cold"])
    assert only["reason"].startswith("The sandbox for your code could not start, in two attempts: ")
    assert "Your code did not run. `lab doctor` checks" in only["reason"]
    assert "\x1b" not in only["reason"]
    assert progress.read(in_workspace).progress.labs == {}


def test_a_process_that_the_system_refuses_is_explained(
    lab_command: Run, solved: Lab, cold_start: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(launch.subprocess, "Popen", refused)
    [only] = one_document(lab_command("grade", "03", "--json"), 3)["labs"]
    assert f"no process could be started ({os.strerror(errno.EAGAIN)})" in only["reason"]


def test_a_second_start_that_works_is_a_grade_like_any_other(
    lab_command: Run, solved: Lab, attempts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = launch.python_command
    ending = [sys.executable, "-c", "raise SystemExit"]
    monkeypatch.setattr(launch, "python_command", lambda *rest: ending if len(attempts) == 1 else command(*rest))
    [only] = one_document(lab_command("grade", "03", "--json"), 0)["labs"]
    assert (only["verdict"], attempts) == ("passed", ["cold", "cold"])


@pytest.mark.extended
@pytest.mark.parametrize("how", ["launch", "__init__"], ids=["has-died", "cannot-start"])
def test_a_fork_server_that_does_not_work_is_replaced_by_a_fresh_interpreter(
    how: str, lab_command: Run, solved: Lab, attempts: list[str], monkeypatch: pytest.MonkeyPatch, collection: Path
) -> None:
    for root in ("labs", "solutions"):
        shutil.copytree(collection / root / "lab03_swapped_order", collection / root / "lab04_second")
    metadata = collection / "labs" / "lab04_second" / "lab.toml"
    metadata.write_text(metadata.read_text().replace('"03"', '"04"').replace('"swapped_order"', '"second"'))
    from labs.grading import catalog

    catalog.all_labs.cache_clear()
    monkeypatch.setattr(ForkServer, how, _gone)
    document = one_document(lab_command("grade", "03", "04", "--json"), 1)
    assert [one["verdict"] for one in document["labs"]] == ["passed", "failed"]
    assert attempts == ["cold", "cold"]


def _gone(server: ForkServer, *job: dict[str, Any]) -> None:
    raise SandboxError("its supervisor could not be reached")


def test_a_probe_that_cannot_be_imported_is_not_the_learners_failure(lab_command: Run, solved: Lab) -> None:
    (solved.folder / "probe.py").write_text("import no_such_module\n")
    [only] = one_document(lab_command("grade", "03", "--json"), 3)["labs"]
    assert "No module named 'no_such_module'" in only["reason"]
    shown = " ".join(lab_command("grade", "03")[1].split())
    assert "No module named 'no_such_module'" in shown
    assert "Your code is not the cause" in shown


@pytest.mark.parametrize("policy", ["def f(:\n", "x = 1\n"], ids=["does-not-parse", "parses"])
def test_checks_that_cannot_be_imported_are_a_grade_with_an_error(
    lab_command: Run, solved: Lab, in_workspace: Workspace, policy: str
) -> None:
    (solved.folder / "checks.py").write_text("raise SystemExit(0)\n")
    (in_workspace.attempt(solved) / "policy.py").write_text(policy)
    [only] = one_document(lab_command("grade", "03", "--json"), 3)["labs"]
    assert (only["verdict"], only["id"]) == ("error", "03")
    assert only["reason"]


@pytest.mark.parametrize("disk", ["works", "is full"])
def test_a_bug_of_the_lab_is_a_document_even_if_its_traceback_cannot_be_saved(
    lab_command: Run, solved: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, disk: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug\nof several lines")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("labs.learner.graded_attempt.grade", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if disk == "is full":
        monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    document = one_document(lab_command("grade", "03", "--json"), 3)
    assert "this is a bug in lab and not in your code (ZeroDivisionError: a bug)" in document["error"]
    assert ("No space left on device" in document["error"]) == (disk == "is full")


def test_a_report_that_cannot_be_written_is_one_document_too(lab_command: Run, solved: Lab) -> None:
    document = one_document(lab_command("grade", "03", "--json", "--junit", "no/such/folder/junit.xml"), 2)
    assert "no such file or folder" in document["error"]


def test_a_process_of_several_that_prints_nothing_is_an_error_and_the_others_count(
    in_workspace: Workspace, solved: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labs.cli.fan_out import Finished
    from labs.cli.grade_command import _grade_of

    done = _grade_of(solved, Finished("03", 137, "", "Killed"))
    assert (done.verdict, done.id) == ("error", "03")
    assert "exit code 137" in (done.reason or "")
    assert isinstance(done.to_json(), dict)

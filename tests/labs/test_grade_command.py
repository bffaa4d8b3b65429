"""`lab grade` with the real grader: its text, its documents, and that nothing is left running."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from child_processes import HANG_S, run, started
from labs.authoring.content_hash import decided_by
from labs.authoring.variants import find_variant
from labs.grading import catalog
from labs.grading.catalog import Lab
from labs.learner import progress
from labs.learner.workspace import Workspace

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

Run = Callable[..., tuple[int, str, str]]
LabProcess = tuple[list[str], dict[str, Any]]
pytestmark = pytest.mark.slow


def submit(workspace: Workspace, lab: Lab, source: Path | str) -> None:
    """Put a policy into the workspace."""
    workspace.start(lab)
    text = source if isinstance(source, str) else source.read_text()
    (workspace.attempt(lab) / "policy.py").write_text(text)


def test_the_first_grade_starts_the_lab_refuses_it_and_shows_what_to_do_next(
    lab_command: Run, in_workspace: Workspace
) -> None:
    code, out, err = lab_command("grade", "3", "--seed", "7")
    assert code == 1
    assert "was not started. It is now" in err
    assert "✗ actions come out in the robot's units" in out
    assert "unnormalise(a, mean, std) is a * std + mean" in out
    assert "debugkit.trace_shapes(policy, batch)" in out
    assert "lab hint 03" in out
    assert "close_to" not in out  # the check's source is never shown
    assert progress.read(in_workspace).progress.labs["03"].grades == 1


def test_a_pass_is_remembered_and_opens_the_solution(lab_command: Run, in_workspace: Workspace, lab: Lab) -> None:
    submit(in_workspace, lab, lab.solution / "policy.py")
    code, out, _ = lab_command("grade", "03")
    assert (code, out.count("✓")) == (0, 4)  # three checks and the verdict
    assert progress.read(in_workspace).progress.status("03") == "passed"
    assert lab_command("solution", "03")[0] == 0


def test_json_is_one_document_whatever_the_submission_prints(lab: Lab, in_workspace: Workspace) -> None:
    noisy = 'import os\nprint("{}")\nos.write(1, b"{}")\nos.write(2, b"{}")\n'
    source = find_variant(lab, "drop_the_mean").files(lab)["policy.py"]
    submit(in_workspace, lab, source.replace("import torch\n", "import torch\n" + noisy, 1))
    done = run([sys.executable, "-m", "labs.cli", "grade", "03", "--json", "--seed", "5"], cwd=in_workspace.root)
    document = json.loads(done.stdout)
    assert done.returncode == 1
    (only,) = document["labs"]
    assert (only["id"], only["verdict"], only["seed"]) == ("03", "failed", 5)
    assert only["recognised_wrong_fix"] == "drop_the_mean"
    assert [check["outcome"] for check in only["checks"]] == ["failed", "failed", "not_run"]
    assert progress.read(in_workspace).progress.labs["03"].wrong_fixes == ("drop_the_mean",)


def test_a_syntax_error_is_the_submissions_and_shows_its_line(
    lab_command: Run, in_workspace: Workspace, lab: Lab
) -> None:
    submit(in_workspace, lab, "def unnormalise(action, mean, std:\n    return action\n")
    code, out, err = lab_command("grade", "03")
    assert code == 1
    assert "line 1" in out
    assert "Traceback" not in out + err


def test_an_error_of_the_grader_is_not_held_against_the_learner(
    lab_command: Run, in_workspace: Workspace, lab: Lab
) -> None:
    (lab.folder / "checks.py").write_text("import nothing_of_that_name\n")
    code, out, _ = lab_command("grade", "03")
    assert code == 3
    assert "Your code is not the cause" in " ".join(out.split())
    assert progress.read(in_workspace).progress.labs["03"].grades == 0


@pytest.mark.extended
def test_several_labs_at_once_are_one_document_and_two_reports(
    collection: Path, in_workspace: Workspace, lab_command: Run
) -> None:
    lab = second_lab(collection)
    submit(in_workspace, lab, lab.solution / "policy.py")
    arguments = ["--jobs", "2", "--json", "--junit", "junit.xml", "--gradescope", "results.json"]
    code, out, _ = lab_command("grade", "--all", *arguments)
    assert code == 1
    assert [(one["id"], one["verdict"]) for one in json.loads(out)["labs"]] == [("03", "failed"), ("04", "passed")]
    contents = [decided_by(catalog.find(number)) for number in ("03", "04")]
    assert [one["content"] for one in json.loads(out)["labs"]] == contents
    suites = ElementTree.parse(in_workspace.root / "junit.xml").getroot().findall("testsuite")
    assert [suite.get("name") for suite in suites] == ["lab03_swapped_order", "lab04_second"]
    assert [suite.find("properties/property[@name='content']").get("value") for suite in suites] == contents
    scores = json.loads((in_workspace.root / "results.json").read_text())
    assert [test["status"] for test in scores["tests"]] == ["failed", "passed"]
    assert [test["extra_data"]["content"] for test in scores["tests"]] == contents
    assert progress.read(in_workspace).progress.status("04") == "passed"


def second_lab(collection: Path) -> Lab:
    """Another lab in the collection, equal but for its number."""
    for root in ("labs", "solutions"):
        shutil.copytree(collection / root / "lab03_swapped_order", collection / root / "lab04_second")
    metadata = collection / "labs" / "lab04_second" / "lab.toml"
    metadata.write_text(metadata.read_text().replace('"03"', '"04"').replace('"swapped_order"', '"second"'))
    catalog.all_labs.cache_clear()
    return catalog.find("04")


HANGING = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b"lab-hangs")  # PR_SET_NAME: seen from outside, whatever the sandbox hides
while True:
    time.sleep(0.1)
"""


@pytest.mark.extended
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("ending", "jobs"), [(signal.SIGINT, "1"), (signal.SIGTERM, "2")])
def test_an_interrupt_leaves_nothing_running(
    collection: Path, in_workspace: Workspace, lab: Lab, ending: signal.Signals, jobs: str
) -> None:
    for one in (lab, second_lab(collection)):
        submit(in_workspace, one, HANGING)
    command = [sys.executable, "-m", "labs.cli", "grade", "03", "04", "--json", "--jobs", jobs]
    with started(command, cwd=in_workspace.root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as grading:
        while "lab-hangs" not in descendants(grading.pid).values():
            assert grading.poll() is None
            time.sleep(0.05)
        below = descendants(grading.pid)
        grading.send_signal(ending)
        out, _ = grading.communicate(timeout=HANG_S)
    assert grading.returncode == 130
    assert "interrupted" in json.loads(out)["error"]
    assert not below.keys() & processes().keys()


Process = tuple[int, str]


def processes() -> dict[Process, tuple[int, str]]:
    """Parent and name of every process but zombies, by pid and start time: a pid alone may be another's by now."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text().rpartition(")")
        except OSError:  # it has just ended
            continue
        state, parent, *rest = tail.split()
        if state != "Z":
            found[int(path.parent.name), rest[17]] = (int(parent), head.partition("(")[2])
    return found


def descendants(root: int) -> dict[Process, str]:
    """Names of the processes below `root`."""
    everything, found, parents = processes(), {}, {root}
    while parents:
        below = {process: name for process, (parent, name) in everything.items() if parent in parents}
        found.update(below)
        parents = {pid for pid, _ in below}
    return found


@pytest.mark.extended
def test_watch_grades_again_when_the_file_is_saved_and_ends_at_a_pass(
    lab: Lab, in_workspace: Workspace, lab_process: LabProcess
) -> None:
    submit(in_workspace, lab, lab.folder / "policy.py")
    command, options = lab_process
    seen = []
    with started([*command, "watch", "03"], cwd=in_workspace.root, stdout=-1, text=True, **options) as watching:
        assert watching.stdout is not None
        for line in watching.stdout:
            seen.append(line)
            if "waiting for you to save" in line:
                submit(in_workspace, lab, lab.solution / "policy.py")
        assert watching.wait(timeout=HANG_S) == 0
    text = "".join(seen)
    assert text.index("not fixed yet") < text.index("waiting for you") < text.index("✓ passed")

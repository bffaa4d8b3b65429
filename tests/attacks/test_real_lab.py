"""A few attacks on a shipped lab: each with a fresh interpreter, two through the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from child_processes import run
from labs.grading import grade, protections
from labs.grading.catalog import find

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/attacks")

LAB = find("03")
NAMESPACES = any(one.name == "namespaces" and one.active for one in protections())

READS_THE_SOLUTION = f"""
exec(compile(open({str(LAB.solution / "policy.py")!r}).read(), "solution", "exec"))
"""
ENDINGS = {
    "exits-with-success": "import os; os._exit(0)",
    "leaves-a-daemon-and-dies": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(10_000)\nos._exit(0)"
    ),
    "prints-a-verdict-and-raises": 'print(\'{"schema": 1, "labs": []}\')\nraise ValueError("\\x1b[2J\\u2713 passed")',
}

pytestmark = pytest.mark.slow


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A learner's folder whose grades have a temporary folder of their own."""
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setenv("TMPDIR", str(private))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))  # not among the rest

    def submit(text: str) -> Path:
        folder = tmp_path / "workspace" / LAB.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "policy.py").write_text(text)
        return folder

    return submit


def left_in(folder: Path) -> list[Path]:
    return list((folder.parents[1] / "private").iterdir())


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_cold_grade_survives_the_end_of_its_child(ending: str, submitted: Callable[[str], Path]) -> None:
    folder = submitted(ending + "\n" + (LAB.solution / "policy.py").read_text())
    found = grade(LAB, folder)
    assert found.verdict == "failed", found.reason
    assert [one.outcome for one in found.checks[1:]] == ["not_run"] * (len(found.checks) - 1)
    assert left_in(folder) == []


@pytest.mark.skipif(not NAMESPACES, reason="this system permits no user namespaces")
def test_the_solution_cannot_be_read_from_disk(submitted: Callable[[str], Path]) -> None:
    folder = submitted((LAB.folder / "policy.py").read_text() + READS_THE_SOLUTION)
    found = grade(LAB, folder)
    assert found.verdict == "failed", found.reason
    assert "FileNotFoundError" in found.checks[0].message


def test_what_is_documented_as_not_stopped_is_not_stopped(
    target: Any, fallback_server: Any, starter: str, private: Path
) -> None:
    """Without namespaces a submission can read the checks and write the learner's files; docs/grading.md says so."""
    checks, planted = target.lab.folder / "checks.py", target.workspace / "x"
    text = f"print(len(open({str(checks)!r}).read()) > 0)\nopen({str(planted)!r}, 'w')\n"
    target.submit(text + starter)
    found = grade(target.lab, target.workspace, server=fallback_server)
    assert found.verdict == "failed"
    assert found.output == "True\n"
    assert planted.exists()
    documented = (Path(__file__).parents[2] / "docs" / "grading.md").read_text()
    assert "Without namespaces the child runs as you" in documented


@pytest.mark.extended
@pytest.mark.parametrize("ending", ["prints-a-verdict-and-raises", "exits-with-success"])
def test_the_command_line_prints_one_document_whatever_is_printed(
    ending: str, submitted: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = submitted(ENDINGS[ending] + "\n" + (LAB.solution / "policy.py").read_text())
    (folder.parent / ".lab").mkdir()
    done = run(
        [sys.executable, "-m", "labs.cli", "grade", "03", "--json", "--workspace", folder.parent],
        env=os.environ | {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")},
    )
    assert done.returncode == 1, done.stderr
    [found] = json.loads(done.stdout)["labs"]
    assert (found["id"], found["verdict"]) == ("03", "failed")
    assert left_in(folder) == []

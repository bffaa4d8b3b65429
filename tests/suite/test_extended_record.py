"""Extended tests that nothing has changed for are left out, and only what passed is recorded."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import extended_record
from child_processes import run

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import os
import pytest
EXTENDED_DEPENDS_ON = ("code", "data/*.txt")
def test_ordinary(): pass
@pytest.mark.extended
def test_first(): pass
@pytest.mark.extended
def test_second():
    if "SKIPS" in os.environ: pytest.skip("as asked")
    assert "FAILS" not in os.environ
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one test file that declares what it depends on, and one that does not."""
    for folder in ("tests/part", "code", "data"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["extended"]\n')
    (tmp_path / "code" / "module.py").write_text("A = 1\n")
    (tmp_path / "data" / "one.txt").write_text("1\n")
    (tmp_path / "data" / "other.csv").write_text("1\n")
    (tmp_path / "tests" / "part" / "test_declares.py").write_text(TESTS)
    (tmp_path / "tests" / "part" / "test_declares_nothing.py").write_text(TESTS.replace("EXTENDED_DEPENDS_ON", "X"))
    return tmp_path


def outcome(project: Path, *arguments: str, **environment: str) -> str:
    """The last line of a run of the extended tests, and how it ended."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "extended_record",
        "-p",
        "no:cacheprovider",
        "-m",
        "extended",
    ]
    given = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_ADDOPTS": ""} | environment
    done = run([*command, *arguments], cwd=project, env=given)
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
    return f"{done.returncode}: {last.partition(' in ')[0]}"


def recorded(project: Path) -> dict[str, int]:
    text = (project / extended_record.RECORD).read_text()
    return {name: entry["tests"] for name, entry in json.loads(text).items()}


@pytest.mark.parametrize(
    "workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.extended)], ids=["alone", "two-workers"]
)
def test_a_file_that_passed_is_left_out_until_something_changes(project: Path, workers: tuple[str, ...]) -> None:
    assert outcome(project, "--changed", *workers).startswith("0: 4 passed")
    assert outcome(project, "--record", *workers).startswith("0: 4 passed")
    assert recorded(project) == {"tests/part/test_declares.py": 2}
    assert outcome(project, "--changed", *workers).startswith("0: 2 passed")
    (project / "data" / "other.csv").write_text("2\n")  # no pattern matches it
    assert outcome(project, "--changed", *workers).startswith("0: 2 passed")
    (project / "code" / "module.py").write_text("A = 2\n")
    assert outcome(project, "--changed", *workers).startswith("0: 4 passed")


@pytest.mark.parametrize(
    "changed", ["tests/part/test_declares.py", "tests/conftest.py", "data/two.txt", "tests/helper.py"]
)
def test_what_a_test_can_use_counts(project: Path, changed: str) -> None:
    outcome(project, "--record")
    with (project / changed).open("a") as file:
        file.write("\n")
    assert outcome(project, "--changed").startswith("0: 4 passed")


@pytest.mark.parametrize(("name", "run"), [("verified.json", 2), ("seeds.json", 2), ("mutants.json", 4)])
def test_the_record_of_a_verification_does_not_count(project: Path, name: str, run: int) -> None:
    (project / "solutions" / "lab01").mkdir(parents=True)
    (project / "solutions" / "lab01" / "solution.py").write_text("A = 1\n")
    test = project / "tests" / "part" / "test_declares.py"
    test.write_text(TESTS.replace('"code"', '"solutions"'))
    outcome(project, "--record")
    (project / "solutions" / "lab01" / name).write_text("{}\n")
    assert outcome(project, "--changed").startswith(f"0: {run} passed")


@pytest.mark.parametrize("state", ["FAILS", "SKIPS"])
def test_a_file_with_a_test_that_did_not_pass_is_not_recorded(project: Path, state: str) -> None:
    outcome(project, "--record")
    outcome(project, "--record", **{state: "1"})
    assert recorded(project) == {}
    assert outcome(project, "--changed").startswith("0: 4 passed")


def test_nothing_left_to_run_is_no_failure(project: Path) -> None:
    (project / "tests" / "part" / "test_declares_nothing.py").unlink()
    outcome(project, "--record")
    assert outcome(project, "--changed").startswith("0: 3 deselected")


@pytest.mark.parametrize("arguments", [("--changed", "-k", "first"), ("--record", "-m", ""), ("--record", "--changed")])
def test_a_part_of_a_file_is_neither_recorded_nor_left_out(project: Path, arguments: tuple[str, ...]) -> None:
    assert outcome(project, *arguments).startswith("4: ERROR: --")
    assert not (project / extended_record.RECORD).exists()


def test_every_declared_pattern_matches_a_file_and_every_record_is_of_a_file_that_declares() -> None:
    declaring = {
        path: patterns
        for path in (ROOT / "tests").rglob("test_*.py")
        if (patterns := extended_record.declared(path)) is not None
    }
    assert declaring
    for path, patterns in declaring.items():
        assert extended_record.digest(ROOT, path, patterns)
    assert {ROOT / name for name in extended_record.read_record(ROOT)} <= set(declaring)

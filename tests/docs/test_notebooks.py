"""The notebooks run from the top, find what they are about, and tell no solution."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from child_processes import run
from labs.classroom.bundle import added_lines
from labs.cli.app import app
from labs.grading.catalog import find

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "docs", "tests/docs")

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    """The code cells, each with its source as one text."""
    stored = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell | {"source": "".join(cell["source"])} for cell in stored if cell["cell_type"] == "code"]


def is_run(cell: dict[str, Any]) -> bool:
    """Whether the quick test runs the cell: installing, training and grading take too long for it."""
    return not {"install", "long"} & set(cell["metadata"].get("tags", ()))


@pytest.fixture
def shell(ipython: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """IPython's shell in an empty folder; `!lab` is the `lab` of this checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def system(command: str) -> None:
        program, *arguments = shlex.split(command)
        assert program == "lab"
        done = run([sys.executable, "-m", "labs.cli", *arguments])
        assert done.returncode == (arguments[0] == "grade"), done  # nothing is fixed yet

    ipython.system = system
    yield ipython
    sys.modules.pop("policy", None)


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_report_names_the_fault(path: Path, shell: Any) -> None:
    for cell in filter(is_run, cells(path)):
        shell.run_cell(cell["source"], store_history=True).raise_error()
    found = {finding.code for finding in shell.user_ns["report"].findings}
    assert found & set(find(path.stem[:2]).rules)


@pytest.mark.extended
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_to_its_last_cell(path: Path, shell: Any) -> None:
    ran = [cell["source"] for cell in cells(path) if "install" not in cell["metadata"].get("tags", ())]
    for source in ran:
        shell.run_cell(source, store_history=True).raise_error()
    assert {source.split()[1] for source in ran if source.startswith("!lab ")} == {"start", "run", "grade", "hint"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_output_and_solution(path: Path) -> None:
    lab = find(path.stem[:2])
    assert path.stem == lab.name.removeprefix("lab")
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(path))
    text = path.read_text(encoding="utf-8")
    assert lab.symptom in text
    assert [line for line in added_lines(lab) if json.dumps(line)[1:-1] in text] == []
    known = {command.name for command in app.registered_commands}
    commands = [cell["source"].split() for cell in cells(path) if cell["source"].startswith("!lab ")]
    assert commands
    assert all(command[1] in known and command[2] == lab.id for command in commands)

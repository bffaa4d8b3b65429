"""A collection of one small lab, a workspace, and `lab` as a user runs it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labs import cli
from labs.authoring import verify as verification
from labs.authoring.variants import alternatives, wrong_fixes
from labs.grading import catalog
from labs.grading.catalog import Lab
from labs.grading.grades import Grade
from labs.learner.workspace import Workspace, make_workspace

COLLECTION = Path(__file__).parent / "collection"


@pytest.fixture
def collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the fixture collection that the catalog reads, here and in child processes."""
    root = tmp_path / "collection"
    shutil.copytree(COLLECTION, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("VLA_LABS_ROOT", str(root / "labs"))
    monkeypatch.setattr(catalog, "LABS_ROOT", root / "labs")
    monkeypatch.setattr(catalog, "SOLUTIONS_ROOT", root / "solutions")
    catalog.all_labs.cache_clear()
    yield root
    catalog.all_labs.cache_clear()


@pytest.fixture
def lab(collection: Path) -> Lab:
    """The fixture lab."""
    return catalog.find("03")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty workspace."""
    make_workspace(tmp_path / "mine")
    return Workspace(tmp_path / "mine")


@pytest.fixture
def in_workspace(workspace: Workspace, collection: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """An empty workspace that is the current folder, over the fixture collection."""
    monkeypatch.chdir(workspace.root)
    return workspace


@pytest.fixture
def cold_start() -> None:
    """For a test whose subject is how a sandbox starts."""


@pytest.fixture(autouse=True)
def _warm_grades(request: pytest.FixtureRequest) -> None:
    if "cold_start" not in request.fixturenames:
        request.getfixturevalue("shared_server")


@pytest.fixture
def lab_command(in_workspace: Workspace, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`lab ARGS…` in this process: exit code, stdout, stderr."""
    from labs.cli import console

    # rich keeps the COLUMNS it was created under; each test has its own.
    console.out._width = console.err._width = None

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.main(arguments)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Counter[str]]]:
    """Grades with outcomes, without, and runs of debugkit's rules, of each submission in a verification."""

    def verify(lab: Lab, **how: Any) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {}
        solution = (lab.solution / "policy.py").read_text()
        names = {(lab.folder / "policy.py").read_text(): "starter", solution: "solution"}
        names |= {one.files(lab)["policy.py"]: one.name for one in [*wrong_fixes(lab), *alternatives(lab)]}

        def count(files: dict[str, str], what: str) -> None:
            found.setdefault(names.get(files["policy.py"], "stub"), Counter())[what] += 1

        def grade(lab: Lab, files: dict[str, str], *, kinds: tuple[str, ...], **_: Any) -> Grade:
            count(files, "whole" if "outcome" in kinds else "structural")
            return Grade(lab.id, lab.slug, "failed", None, 0.0, 1)

        def diagnose(_: Lab, files: dict[str, str], **__: Any) -> dict[str, Any]:
            count(files, "rules")
            return {"findings": []}

        monkeypatch.setattr(verification, "grade", grade)
        monkeypatch.setattr(verification, "diagnose", diagnose)
        monkeypatch.setattr(verification, "difference_from_lesson", lambda *_: None)
        verification.verify(lab, None, **how)  # type: ignore[arg-type]
        return found

    return verify

"""The history of capstone c1: 40 commits, the same hashes every time, and the head is what the learner corrects."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from labs.authoring.lab_module import load_module
from labs.capstones.capstone import find_capstone
from labs.grading.catalog import Lab


@pytest.fixture(scope="module")
def capstone() -> Lab:
    found = find_capstone("c1")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def history(capstone: Lab) -> ModuleType:
    return load_module(capstone.folder / "make_history.py")


@pytest.fixture(scope="module")
def clone(history: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    history.git(folder, "clone", "--quiet", history.BUNDLE, folder / "repo")
    return folder / "repo"


def test_patches_give_the_commits_of_the_bundle(history: ModuleType, clone: Path, tmp_path: Path) -> None:
    assert history.build(tmp_path) == history.git(clone, "rev-parse", "HEAD")
    assert history.git(clone, "rev-list", "--count", "HEAD") == "40"


def test_head_is_what_the_learner_corrects(capstone: Lab, clone: Path) -> None:
    for name in capstone.editable:
        assert (clone / name).read_bytes() == (capstone.folder / name).read_bytes()


def test_log_names_commits_of_the_history(capstone: Lab, history: ModuleType, clone: Path) -> None:
    nights = (capstone.folder / "handout" / "nightly.log").read_text().splitlines()
    assert nights
    for night in nights:
        assert history.git(clone, "cat-file", "-t", night.split()[2]) == "commit"


def test_every_commit_but_one_compiles_and_has_its_imports(history: ModuleType, clone: Path) -> None:
    without = []
    for commit in history.git(clone, "rev-list", "--reverse", "HEAD").split():
        files = history.git(clone, "ls-tree", "--name-only", commit).split()
        texts = {name: history.git(clone, "show", f"{commit}:{name}") for name in files if name.endswith(".py")}
        for name, text in texts.items():
            compile(text, name, "exec")
        if any("from splits import" in text for text in texts.values()) and "splits.py" not in files:
            without.append(history.git(clone, "log", "-1", "--format=%s", commit))
    assert without == ["train: log the loss on held-out demonstrations"]


def test_answers_are_commits_with_these_messages(capstone: Lab, history: ModuleType, clone: Path) -> None:
    answers = tomllib.loads((capstone.solution / "answers.toml").read_text())
    subject = {name: history.git(clone, "log", "-1", "--format=%s", one["value"]) for name, one in answers.items()}
    assert subject == {
        "regression": "Tidy the conversions of ActionScale",
        "hidden_by": "evaluate: rates of the episodes that have a result",
    }
    for answer in answers.values():
        full = history.git(clone, "rev-parse", answer["value"])
        assert full in answer["also"]
        assert all(full.startswith(one) for one in answer["also"])
        assert not any(full.startswith(one) for one in answer["wrong"])
        for one in answer["wrong"]:
            assert history.git(clone, "cat-file", "-t", one) == "commit"

"""`debugkit dev rule` makes one folder and two fixtures that run; its TODOs are refused by the rule table's tests."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from child_processes import run
from debugkit.cli import app
from debugkit.new_rule import NewRule, NewRuleError, create

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The parts of a clone that a new rule needs."""
    shutil.copytree(ROOT / "debugkit", tmp_path / "debugkit", ignore=shutil.ignore_patterns("__pycache__"))
    rules = tmp_path / "tests" / "rules"
    rules.mkdir(parents=True)
    for name in ("conftest.py", "test_fixtures.py"):
        shutil.copy(ROOT / "tests" / "rules" / name, rules)
    shutil.copy(ROOT / "tests" / "shared_folder.py", rules.parent)
    shutil.copy(ROOT / "tests" / "sampling.py", rules.parent)
    return tmp_path


def test_a_new_rule_fires_on_its_fixture_and_is_silent_on_the_healthy_one(clone: Path) -> None:
    written = create(NewRule("dk399", "Labels_Shuffled"), clone)
    assert [path.relative_to(clone).as_posix() for path in written] == [
        "debugkit/rules/dk399_labels_shuffled/__init__.py",
        "debugkit/rules/dk399_labels_shuffled/measure.py",
        "tests/rules/dk399/fires.py",
        "tests/rules/dk399/silent.py",
    ]
    quiet = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".")
    done = run(
        [sys.executable, "-m", "pytest", *quiet, "tests/rules"],
        cwd=clone,
        env={"PYTHONPATH": f"{clone}:{clone / 'tests'}", "PATH": "/usr/bin:/bin"},
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("code", "name", "why"),
    [
        ("DK39", "labels-shuffled", "not a rule code"),
        ("DK399", "Labels shuffled!", "not a rule name"),
        ("DK305", "labels-shuffled", r"DK305 is taken by batch-leak\. The next free code is DK3\d\d\."),
        ("DK399", "batch-leak", "DK305 has the name batch-leak already"),
    ],
)
def test_what_cannot_be_created_is_explained_and_nothing_is_written(
    clone: Path, code: str, name: str, why: str
) -> None:
    before = sorted(clone.rglob("*"))
    with pytest.raises(NewRuleError, match=why):
        create(NewRule(code, name), clone)
    assert sorted(clone.rglob("*")) == before


def test_outside_a_clone_the_command_says_so(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["dev", "rule", "DK399", "labels-shuffled", "--root", str(tmp_path)])
    assert done.exit_code == 2
    assert "is not a clone" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_command_prints_what_it_created_and_what_to_run(clone: Path) -> None:
    done = CliRunner().invoke(app, ["dev", "rule", "DK399", "labels-shuffled", "--root", str(clone)])
    assert done.exit_code == 0
    assert done.stdout.count("created  ") == 4
    assert "pytest tests/rules -k dk399" in done.stdout
    again = CliRunner().invoke(app, ["dev", "rule", "DK399", "labels-shuffled", "--root", str(clone)])
    assert again.exit_code == 2
    assert "nothing was written" in again.stderr

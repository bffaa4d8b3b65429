"""`.ci/run`: what it runs is in the README and in this checkout, and every test belongs to one of its parts."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from child_processes import run

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "run"
STEP = re.compile(r"^(\w+) +(check|test|extended) +(.+)$", re.MULTILINE)
STEPS = [match.groups() for match in STEP.finditer(SCRIPT.read_text(encoding="utf-8"))]


def test_every_folder_of_tests_is_in_exactly_one_part() -> None:
    tested = [word for _, kind, command in STEPS if kind == "test" for word in shlex.split(command) if "tests/" in word]
    there = {path.parent.relative_to(ROOT).parts[:2] for path in (ROOT / "tests").rglob("test_*.py")}
    assert sorted(tested) == sorted("/".join(parts) for parts in there)


def test_a_contributor_is_told_every_part() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for part in dict.fromkeys(part for part, _, _ in STEPS):
        assert f".ci/run {part}" in told


def test_it_runs_the_readmes_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- commands: begin -->\n```sh\n(.*?)```\n<!-- commands: end -->", text, re.DOTALL)
    assert block is not None
    printed = run([SCRIPT, "--print"], check=True).stdout
    assert printed == block.group(1)
    assert [program in command for program, command in zip(("lab demo", "pytest"), printed.splitlines(), strict=True)]


def test_a_readme_without_its_commands_is_refused(checkout: Path) -> None:
    (checkout / "README.md").write_text("# No commands here\n", encoding="utf-8")
    refused = run([checkout / ".ci" / "run", "--print"])
    assert refused.returncode == 2
    assert "README.md" in refused.stderr


def test_an_unknown_part_is_refused_with_those_there_are() -> None:
    refused = run([SCRIPT, "lint", "cor."])
    assert refused.returncode == 2
    assert "no part 'cor.'. Parts: lint core grader curriculum." in refused.stderr


@pytest.mark.parametrize(("second", "code"), [("exit 3", 1), ("echo two", 0)])
def test_a_failing_step_ends_it_and_the_table_says_where_the_time_went(checkout: Path, second: str, code: int) -> None:
    done = of_two_commands(checkout, "echo one > left_by_one", second)
    assert done.returncode == code, done.stderr
    rows = re.findall(r"^ +\d+  (.+)$", done.stdout.partition("seconds  step\n")[2], re.MULTILINE)
    assert rows == ["echo one > left_by_one", second, "in all"]
    assert ("this step ended with 3" in done.stderr) == (code == 1)
    assert not (checkout / "left_by_one").exists(), "it ran in the checkout and not in a copy"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository that holds the script and nothing to check."""
    folder = tmp_path / "checkout"
    (folder / ".ci").mkdir(parents=True)
    script = STEP.sub("", SCRIPT.read_text(encoding="utf-8"))
    (folder / ".ci" / "run").write_text(script, encoding="utf-8")
    shutil.copymode(SCRIPT, folder / ".ci" / "run")
    run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


def of_two_commands(checkout: Path, first: str, second: str) -> subprocess.CompletedProcess[str]:
    text = f"<!-- commands: begin -->\n```sh\n{first}\n{second}\n```\n<!-- commands: end -->\n"
    (checkout / "README.md").write_text(text, encoding="utf-8")
    return run([checkout / ".ci" / "run"])

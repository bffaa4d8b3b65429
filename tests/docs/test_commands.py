"""Commands that a page shows run as printed."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from child_processes import run as run_child
from docs_modules import english
from labs.grading import catalog

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "docs", "tests/docs")

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "debugkit" / "command_line.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
# A command that finds something ends in 1, as the guide says; the fault is planted in the snippet.
FINDS = {
    "debugkit run train.py --steps 10": "DK501",
    "torchrun --nproc-per-node 2 --no-python debugkit run train.py --steps 10": "DK501",
    "debugkit check build.py:build": "DK002",
}

Run = Callable[[str], tuple[int, str, str]]


SHELL = re.compile(r"^( *)```(?:sh|bash)\b[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
PAGES = [*english((ROOT / "docs").rglob("*.md")), ROOT / "README.md", CONTRIBUTING]
SHELL_BLOCKS = [
    pytest.param(textwrap.dedent(block), id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, (_, block) in enumerate(SHELL.findall(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("block", SHELL_BLOCKS)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_block_can_be_pasted_as_printed(shell: str, block: str) -> None:
    """zsh takes a comment that is typed for arguments, and an unquoted bracket for a pattern."""
    if block.startswith("#!"):
        return  # a script, which is saved and not typed
    assert not re.search(r"(^|\s)#|…|\.\.\.(\s|$)", block), "a comment or an omission cannot be pasted"
    for line in block.splitlines():
        assert not any("[" in word for word in re.sub(r"'[^']*'|\"[^\"]*\"", "", line).split()), line
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    checked = subprocess.run([shell, "-n", "-c", block], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_shell_blocks_are_found() -> None:
    assert len(SHELL_BLOCKS) > 20


def commands(page: Path, under: str = "") -> list[str]:
    """The lines of the page's ```sh blocks below the heading `under`, without comments."""
    text = page.read_text(encoding="utf-8")
    if under:
        text = re.split(r"^## ", text.split(f"\n## {under}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [re.split(r"(?:^|\s)#", line)[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """A command line of `lab` or `debugkit` in this process, of `torchrun` in its own: exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", list(sys.path))

    def typed(command: str) -> tuple[int, str, str]:
        program, *arguments = shlex.split(command)
        if program == "torchrun":
            beside = Path(sys.executable).parent
            path = {"PATH": f"{beside}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
            done = run_child([beside / program, *arguments], env={**os.environ, **path, "OMP_NUM_THREADS": "1"})
            return done.returncode, done.stdout, done.stderr
        main = importlib.import_module({"debugkit": "debugkit.cli", "lab": "labs.cli"}[program]).main
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        capfd.readouterr()
        try:
            code = main()
        except SystemExit as end:
            code = end.code
        return (int(code or 0), *capfd.readouterr())

    return typed


def test_the_guide_shows_each_command_that_finds_something() -> None:
    assert set(FINDS) <= set(commands(GUIDE))


@pytest.mark.slow
@pytest.mark.parametrize("command", commands(GUIDE))
def test_a_command_of_the_guide_runs_as_printed(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(ROOT / "docs" / "snippets")
    code, out, err = run(command)
    assert code == (1 if command in FINDS else 0), out + err
    assert FINDS.get(command, "") in out + err
    assert command.startswith("torchrun") or "Traceback" not in err  # it prints its own for an exit code that is not 0


@pytest.mark.extended
@pytest.mark.slow
def test_the_terminal_on_the_home_page_is_what_lab_grade_prints(run: Run, tmp_path: Path, shared_server: None) -> None:
    [(command, picture)] = re.findall(
        r'^```{ \.text \.terminal title="([^"]+)" }\n(.*?)^```',
        (ROOT / "docs/index.md").read_text("utf-8"),
        re.S | re.M,
    )
    folder = str(tmp_path / "workspace")
    workspace = ["--workspace", folder]
    assert run(shlex.join(["lab", "init", folder]))[0] == 0
    assert run(shlex.join([*command.replace("grade", "start").split(), *workspace]))[0] == 0
    code, out, err = run(shlex.join([*command.split(), "--seed", "1608023729", *workspace]))
    assert code == 1, out + err
    grade = " ".join(out.split())
    missing = [line for line in picture.splitlines() if " ".join(line.split()) not in grade]
    assert not missing, f"{missing[0]!r} is not in:\n{out}"


@pytest.fixture
def empty_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of labs that holds none; it is the current folder's."""
    monkeypatch.setattr(catalog, "LABS_ROOT", tmp_path / "labs")
    monkeypatch.setattr(catalog, "SOLUTIONS_ROOT", tmp_path / "solutions")
    monkeypatch.setenv("VLA_LABS_ROOT", str(tmp_path / "labs"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labs").mkdir()
    return tmp_path


def test_adding_a_lab_goes_as_the_contributing_guide_says(
    run: Run, empty_collection: Path, request: pytest.FixtureRequest
) -> None:
    """The skeleton is made where the guide says, and verify refuses it by naming what is still to be written."""
    request.addfinalizer(catalog.all_labs.cache_clear)
    catalog.all_labs.cache_clear()
    made, refused, *_ = commands(CONTRIBUTING, under="Add a lab")
    code, out, err = run(made)
    assert code == 0, out + err
    number, slug, chapter = re.fullmatch(r"lab dev new (\d\d) (\w+) --chapter (\w+)", made).groups()  # type: ignore[union-attr]
    folder = empty_collection / "labs" / f"lab{number}_{slug}"
    for name in ("lab.toml", "policy.py", "probe.py", "checks.py", "hints.md", "wrong_fixes"):
        assert (folder / name).exists()
    assert (empty_collection / "solutions" / folder.name / "policy.py").exists()
    assert (empty_collection / "docs" / "lessons" / chapter / f"{number}_{slug}.md").exists()
    catalog.all_labs.cache_clear()
    code, out, err = run(refused)
    assert code == 1, out + err
    assert "not written yet" in out
    assert "Traceback" not in err


def test_the_first_lab_installs_as_the_readme_does() -> None:
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    assert commands(ROOT / "README.md", under="Two commands")[0] in page

"""Commands that a page shows run as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "debugkit" / "command_line.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
# A command that finds something ends in 1, as the guide says; the fault is planted in the snippet.
FINDS = {"debugkit run train.py --steps 10": "DK501", "debugkit check build.py:build": "DK002"}


def commands(page: Path, under: str = "") -> list[str]:
    """The lines of the page's ```sh blocks that stand below the heading `under`, without comments."""
    text = page.read_text(encoding="utf-8")
    if under:
        text = re.split(r"^## ", text.split(f"\n## {under}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line.split("#")[0].strip() for block in blocks for line in block.splitlines() if line.split("#")[0].strip()]


def run(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    module = {"debugkit": "debugkit.cli", "lab": "labs.cli"}[program]
    entry = f"import sys; from {module} import main; sys.argv[0] = {program!r}; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", entry, *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_guide_shows_each_command_that_finds_something() -> None:
    assert set(FINDS) <= set(commands(GUIDE))


@pytest.mark.slow
@pytest.mark.parametrize("command", commands(GUIDE))
def test_a_command_of_the_guide_runs_as_printed(command: str) -> None:
    done = run(command, cwd=ROOT / "docs" / "snippets")
    assert done.returncode == (1 if command in FINDS else 0), done.stdout + done.stderr
    assert FINDS.get(command, "") in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_adding_a_lab_goes_as_the_contributing_guide_says(tmp_path: Path) -> None:
    """The skeleton is made where the guide says, and verify refuses it by naming what is still to be written."""
    made, refused, *_ = commands(CONTRIBUTING, under="Add a lab in 30 minutes")
    collection = tmp_path / "labs"
    collection.mkdir()
    environment = {"VLA_LABS_ROOT": str(collection), "HOME": str(tmp_path)}
    new = run(made, tmp_path, **environment)
    assert new.returncode == 0, new.stdout + new.stderr
    number, slug, chapter = re.fullmatch(r"lab dev new (\d\d) (\w+) --chapter (\w+)", made).groups()  # type: ignore[union-attr]
    folder = collection / f"lab{number}_{slug}"
    for name in ("lab.toml", "policy.py", "probe.py", "checks.py", "hints.md", "wrong_fixes"):
        assert (folder / name).exists()
    assert (tmp_path / "solutions" / folder.name / "policy.py").exists()
    assert (tmp_path / "docs" / "lessons" / chapter / f"{number}_{slug}.md").exists()
    verified = run(refused, tmp_path, **environment)
    assert verified.returncode == 1, verified.stdout + verified.stderr
    assert "not written yet" in verified.stdout
    assert "Traceback" not in verified.stderr


def test_the_readmes_two_commands_are_what_the_continuous_integration_runs() -> None:
    printed = subprocess.run(
        [ROOT / ".ci" / "run", "--print"], capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()
    assert printed == commands(ROOT / "README.md", under="Two commands")
    assert len(printed) == 2
    assert "lab demo" in printed[0]
    assert "pytest" in printed[1]


def test_the_continuous_integration_refuses_a_readme_without_its_commands(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "run"
    script.write_bytes((ROOT / ".ci" / "run").read_bytes())
    (tmp_path / "README.md").write_text("# No commands here\n", encoding="utf-8")
    refused = subprocess.run(["bash", script, "--print"], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "README.md" in refused.stderr


@pytest.mark.parametrize("page", ["docs/start.md", "docs/ko/index.md"])
def test_every_page_installs_as_the_readme_does(page: str) -> None:
    assert commands(ROOT / "README.md", under="Two commands")[0] in (ROOT / page).read_text(encoding="utf-8")

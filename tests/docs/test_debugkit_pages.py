"""Each Python block of the debugkit guide and of the home page runs alone, and prints what the page shows."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from child_processes import run
from docs_modules import DOCS, english
from labs.authoring import printed

ROOT = DOCS.parent
PAGES = [*english((DOCS / "debugkit").glob("*.md")), DOCS / "index.md"]
_INCLUDE = re.compile(r'^--8<-- "([\w/.]+?)(?::(\w+))?"$', re.MULTILINE)
_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?[^\n]*\n(.*?)^```', re.DOTALL | re.MULTILINE)
HANG = "distributed_hang.py"
"""Runs on two processes, of which one waits for the other."""


@dataclass(frozen=True)
class Block:
    """A program of a page: its file, the files that the page shows before it, and the output after it."""

    page: str
    name: str
    code: str
    files: tuple[tuple[str, str], ...]
    shown: str


def expanded(markdown: str) -> str:
    """The page with its includes, as a reader sees it."""

    def text(include: re.Match[str]) -> str:
        content = (DOCS / "snippets" / include[1]).read_text(encoding="utf-8")
        if include[2]:
            content = content.split(f"[start:{include[2]}]\n", 1)[1].split(f"# --8<-- [end:{include[2]}]", 1)[0]
        return content.rstrip("\n")

    return _INCLUDE.sub(text, markdown)


def blocks() -> Iterator[Block]:
    for page in PAGES:
        fences = _FENCE.findall(expanded(page.read_text(encoding="utf-8")))
        files = tuple((title, text) for language, title, text in fences if language == "yaml" and title)
        for (language, title, text), following in itertools.pairwise([*fences, ("", "", "")]):
            if language == "python":
                shown = following[2] if following[0] == "text" and not following[1] else ""
                yield Block(page.name, title or "example.py", text, files, shown)


BLOCKS = list(blocks())


def test_the_guide_has_many_programs_and_shows_what_most_print() -> None:
    assert len(BLOCKS) >= 15
    assert [block.name for block in BLOCKS if not block.shown] == ["build.py"], "it is an argument of `debugkit check`"


def write(block: Block, folder: Path) -> None:
    for name, text in (*block.files, (block.name, block.code)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def two_ranks(folder: Path, name: str) -> str:
    """What the first of two ranks says, until it names the rule; then both are ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    environment = {**os.environ, **address, "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen([sys.executable, name], cwd=folder, env={**environment, "RANK": rank}, stderr=subprocess.PIPE)
        for rank in "01"
    ]
    try:
        return next(line.decode() for line in ranks[0].stderr or () if b"DK804" in line)
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            rank.communicate()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}-{block.name}")
def test_a_program_runs_alone_and_prints_what_its_page_shows(
    block: Block, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(block, tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", [block.name])
    monkeypatch.setattr(logging.root, "handlers", logging.root.handlers[:])
    if block.name.startswith("test_"):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", block.name]
        tested = run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
        out = re.sub("^E {1,7}", "", tested.stdout, flags=re.MULTILINE).replace("AssertionError: ", "")
        assert "1 failed, 2 passed" in out
    elif block.files:  # Hydra keeps its log open as long as the process lives
        out = run([sys.executable, block.name], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}).stdout
    elif block.name == HANG:
        out = two_ranks(tmp_path, block.name)
    else:
        capfd.readouterr()
        with contextlib.chdir(tmp_path), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runpy.run_path(block.name, run_name="__main__")
        out = capfd.readouterr().out
    if block.shown:
        wrong = printed.difference(block.shown, out)
        assert wrong is None, f"docs/debugkit/{block.page}: {block.name} prints something else:\n{wrong}"

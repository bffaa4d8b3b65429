"""Files in a learner's folder beside the graded file, or instead of it, do not affect the verdict."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labs.grading import ForkServer, grade

ESCAPE = "raise SystemExit('planted code ran')\n"


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path is at most 107 bytes long
        try:
            one.bind(path.name)
        finally:
            os.chdir(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


IN_PLACE_OF_THE_FILE: dict[str, Callable[[Path, Path], object]] = {
    "a-link-to-the-solution": lambda path, solution: path.symlink_to(solution),
    "a-link-to-itself": lambda path, _: path.symlink_to(path),
    "a-link-to-an-endless-device": lambda path, _: path.symlink_to("/dev/zero"),
    "a-fifo": lambda path, _: _fifo(path),
    "a-socket": lambda path, _: _socket(path),
    "a-folder": lambda path, _: path.mkdir(),
    "nothing": lambda path, _: None,
    "a-tebibyte": lambda path, _: _sparse(path),
    "bytes-that-are-not-text": lambda path, solution: path.write_bytes(b"\xff\xfe" + solution.read_bytes()),
    "a-null-byte": lambda path, solution: path.write_bytes(solution.read_bytes() + b"x = 1\0"),
    "half-a-megabyte-of-brackets": lambda path, _: path.write_text("(" * 500_000),
    "half-a-megabyte-of-minus-signs": lambda path, _: path.write_text("-" * 500_000 + "1"),
    "a-hundred-thousand-sums": lambda path, _: path.write_text("1" + "+1" * 200_000),
    "a-hundred-thousand-attributes": lambda path, _: path.write_text("a" + ".b" * 200_000),
    "a-hundred-thousand-assignments": lambda path, _: path.write_text("a=" * 100_000 + "1"),
    "a-hundred-thousand-nots": lambda path, _: path.write_text("not " * 100_000 + "1"),
    "a-hundred-thousand-lambdas": lambda path, _: path.write_text("lambda:" * 70_000 + "1"),
    "a-hundred-thousand-branches": lambda path, _: path.write_text("if a: 1\n" + "elif a: 1\n" * 50_000),
    "unclosed-braces": lambda path, _: path.write_text("{" * 90 + ":" + "a(" * 90),
    "a-number-of-half-a-million-digits": lambda path, _: path.write_text("x = " + "9" * 500_000),
}


@pytest.mark.parametrize("put", IN_PLACE_OF_THE_FILE.values(), ids=IN_PLACE_OF_THE_FILE)
def test_what_is_not_a_learners_file_fails_with_a_sentence(
    put: Callable[[Path, Path], object], target: Any, server: ForkServer, solution_file: Path
) -> None:
    put(target.workspace / "policy.py", solution_file)
    found = grade(target.lab, target.workspace, server=server)
    assert found.verdict == "failed", found.reason
    assert 0 < len(found.reason or "") < 600
    assert "passed" not in {one.outcome for one in found.checks}


BESIDE_THE_FILE = {
    "conftest": {"conftest.py": ESCAPE},
    "pytest-settings": {"pytest.ini": "[pytest]\naddopts = --collect-only -p planted\n", "planted.py": ESCAPE},
    "tox-and-setup-cfg": {"tox.ini": "[pytest]\naddopts=-h", "setup.cfg": "[tool:pytest]\naddopts=-h"},
    "sitecustomize": {"sitecustomize.py": ESCAPE, "usercustomize.py": ESCAPE, "planted.pth": "import planted"},
    "shadows-of-the-sandbox": {"labs.py": ESCAPE, "labs/__init__.py": ESCAPE, "labs/grading/__init__.py": ESCAPE},
    "shadows-of-torch": {"torch.py": ESCAPE, "numpy.py": ESCAPE, "json.py": ESCAPE, "random.py": ESCAPE},
    "its-own-judges": {"checks.py": "", "probe.py": ESCAPE, "lab.toml": "seeds = []"},
    "its-own-solution": {"solutions/lab90_toy_offset/policy.py": ESCAPE},
    "a-shadow-of-itself": {"policy/__init__.py": ESCAPE},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "start"), [*((name, "warm") for name in BESIDE_THE_FILE), ("shadows-of-torch", "cold")]
)
def test_files_beside_the_learners_are_not_read(
    name: str,
    start: str,
    target: Any,
    server: ForkServer,
    starter: str,
    solution: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for planted, text in BESIDE_THE_FILE[name].items():
        path = target.workspace / planted
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(target.workspace)
    for text, verdict in ((solution, "passed"), (starter, "failed")):
        target.submit(text)
        found = grade(target.lab, target.workspace, server=server if start == "warm" else None)
        assert found.verdict == verdict, found.reason
        assert "planted code ran" not in found.output + (found.reason or "")


@pytest.mark.slow
def test_the_users_environment_does_not_reach_the_child(
    target: Any, starter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = target.workspace / "planted"
    planted.mkdir()
    for name in ("sitecustomize.py", "torch.py", "conftest.py", "startup.py"):
        (planted / name).write_text(ESCAPE)
    settings = {
        "PYTHONPATH": str(planted),
        "PYTHONSTARTUP": str(planted / "startup.py"),
        "PYTHONINSPECT": "1",
        "PYTHONWARNINGS": "error",
        "PYTEST_ADDOPTS": "--collect-only",
        "PYTEST_PLUGINS": "planted",
        "TORCH_LOGS": "+all",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    target.submit(starter)
    found = grade(target.lab, target.workspace)
    assert found.verdict == "failed", found.reason
    assert [one.outcome for one in found.checks] == ["failed", "passed", "not_run"]


def test_poisoned_bytecode_beside_the_file_is_not_run(target: Any, server: ForkServer, starter: str) -> None:
    cache = target.workspace / "__pycache__"
    cache.mkdir()
    target.submit(starter)
    status = (target.workspace / "policy.py").stat()
    import importlib.util
    import marshal

    header = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, int(status.st_mtime), status.st_size)
    code = marshal.dumps(compile(ESCAPE, "policy.py", "exec"))
    (cache / f"policy.{sys.implementation.cache_tag}.pyc").write_bytes(header + code)
    found = grade(target.lab, target.workspace, server=server)
    assert found.checks[0].outcome == "failed"
    assert "planted code ran" not in found.output + (found.reason or "")


@pytest.mark.parametrize(
    "write",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: ("# -*- coding: latin-1 -*-\n" + text).encode(),
        lambda text: ("PATTERN = '\\d'\nSAME = 1 is 1\n" + text).encode(),
    ],
    ids=["byte-order-mark", "windows-lines", "a-false-encoding", "a-syntax-warning"],
)
def test_an_unusual_but_valid_file_passes(
    write: Callable[[str], bytes], target: Any, server: ForkServer, solution: str
) -> None:
    (target.workspace / "policy.py").write_bytes(write(solution))
    found = grade(target.lab, target.workspace, server=server)
    assert found.passed, found.reason

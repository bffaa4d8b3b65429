"""A test that leaves a process behind fails and the process is gone; a fixture's own process may stay until it ends."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import psutil
import pytest

import left_behind
from child_processes import run, started

TESTS = Path(__file__).parents[1]
FILE = """
import os, subprocess, sys, time
import pytest

SLEEPS = [sys.executable, "-S", "-c", "import time; time.sleep(3000)", {token!r}]
LEAVES = {{
    "a child": lambda: subprocess.Popen(SLEEPS),
    "a child of a child": lambda: subprocess.run(
        [sys.executable, "-S", "-c", f"import subprocess; subprocess.Popen({{SLEEPS!r}})"]
    ),
    "a child in another session": lambda: subprocess.Popen(SLEEPS, start_new_session=True),
    "a fork": lambda: os.fork() or time.sleep(3000),
    "a child that is never waited for": lambda: os.fork() or os._exit(0),
}}

@pytest.mark.parametrize("what", LEAVES)
def test_leaves(what):
    LEAVES[what]()

@pytest.fixture(scope="session")
def server():
    process = subprocess.Popen(SLEEPS)
    yield process
    process.kill()
    process.wait()

def test_uses_a_server(server):
    assert server.poll() is None

def test_uses_it_again(server):
    assert server.poll() is None
"""


def test_a_process_left_behind_fails_its_test_and_no_other(tmp_path: Path) -> None:
    token = f"left-behind-{tmp_path}"
    inner = tmp_path / "tests"  # as here: the configuration is in the folder above
    inner.mkdir()
    for name in ("conftest.py", "extended_record.py"):
        shutil.copy(TESTS / name, inner)
    impatient = (TESTS / "left_behind.py").read_text().replace(f"ENDING_S = {left_behind.ENDING_S}", "ENDING_S = 1")
    (inner / "left_behind.py").write_text(impatient)
    (inner / "test_it.py").write_text(FILE.format(token=token))
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    done = run([sys.executable, "-m", "pytest", *options, "tests"], cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("ERROR tests/test_it.py::test_leaves") == 5
    assert "7 passed, 5 errors" in done.stdout
    assert not [each for each in psutil.process_iter(["cmdline"]) if token in (each.info["cmdline"] or ())]


def test_a_process_started_for_a_test_is_gone_after_an_exception() -> None:
    with (
        pytest.raises(ZeroDivisionError),
        started([sys.executable, "-S", "-c", "import time; time.sleep(3000)"]) as process,
    ):
        1 / 0  # noqa: B018
    assert process.returncode is not None
    assert not psutil.pid_exists(process.pid)

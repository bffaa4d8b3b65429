"""`lab watch` in a terminal: its keys, and that a verdict is always about the file as it is now."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shutil
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from child_processes import HANG_S, started
from labs.grading import catalog
from labs.grading.catalog import Lab
from labs.learner import progress
from labs.learner.workspace import Workspace

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

pytestmark = pytest.mark.slow
WITH_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
WAITING = "waiting for you to save policy.py"
LabProcess = tuple[list[str], dict[str, Any]]
Watching = Callable[[], AbstractContextManager["Terminal"]]
ESCAPES = re.compile(r"\x1b\[[0-?]*[@-~]")
KEYS = "h hint · l list · r run · n next lab · q quit"


class Terminal:
    """`lab watch 03` in a terminal of its own."""

    def __init__(self, primary: int, process: Any, before: list[Any]) -> None:
        self._primary = primary
        self._before = before
        self.process = process
        self.shown = ""

    def until(self, text: str) -> str:
        """What is shown from now on, without escape sequences, up to a text."""
        raw, deadline = "", time.monotonic() + HANG_S
        while text not in (seen := ESCAPES.sub("", raw)):
            assert time.monotonic() < deadline, seen
            if select.select([self._primary], [], [], 1.0)[0]:
                raw += os.read(self._primary, 65536).decode(errors="replace")
        self.shown += seen
        return seen

    def press(self, key: str) -> None:
        os.write(self._primary, key.encode())

    def read_lines(self) -> None:
        """Give the terminal the settings that it had at first: what is typed is read at Enter."""
        termios.tcsetattr(self._primary, termios.TCSANOW, self._before)

    def ended(self) -> int:
        """The exit code; what is still shown is read, or the process could not end."""
        while self.process.poll() is None:
            if select.select([self._primary], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self.shown += os.read(self._primary, 65536).decode(errors="replace")
        return int(self.process.returncode)


@pytest.fixture
def watching(in_workspace: Workspace, lab_process: LabProcess) -> Watching:
    """`with watching() as terminal:` runs `lab watch 03` in the workspace."""
    return lambda: _watching(in_workspace.root, *lab_process)


@contextlib.contextmanager
def _watching(folder: Path, lab: list[str], options: dict[str, Any]) -> Iterator[Terminal]:
    primary, secondary = pty.openpty()
    before = termios.tcgetattr(secondary)
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "150"}
    command = [sys.executable, "-c", WITH_THE_TERMINAL, *lab, "watch", "03"]
    streams = {"stdin": secondary, "stdout": secondary, "stderr": secondary}
    try:
        with started(command, cwd=folder, env=environment, **streams, **options) as process:
            yield Terminal(primary, process, before)
        assert termios.tcgetattr(secondary) == before, "the terminal is not as it was"
    finally:
        os.close(secondary)
        os.close(primary)


@pytest.fixture
def started_lab(in_workspace: Workspace, lab: Lab) -> Path:
    in_workspace.start(lab)
    return in_workspace.attempt(lab) / "policy.py"


def test_keys_do_what_the_commands_do_and_quit_restores_the_terminal(
    started_lab: Path, in_workspace: Workspace, watching: Watching
) -> None:
    with watching() as terminal:
        assert "not fixed yet" in terminal.until(KEYS)
        terminal.press("h")
        assert "hint 1 of 3" in terminal.until(KEYS)
        terminal.press("h")
        assert "hint 2 of 3" in terminal.until(KEYS)
        terminal.press("l")
        assert "VLA Debugging Lab" in terminal.until(KEYS)
        terminal.press("r")
        assert "03 · The arm that overshoots" in terminal.until(KEYS)
        terminal.press("\x1b[A")  # an arrow
        terminal.press("n")
        assert "All other labs are done." in terminal.until(KEYS)
        terminal.press("q")
        assert terminal.ended() == 0
    assert progress.read(in_workspace).progress.labs["03"].hints == 2
    assert "Traceback" not in terminal.shown


def test_a_pass_is_shown_after_a_save_and_the_next_lab_is_watched(
    started_lab: Path, in_workspace: Workspace, lab: Lab, collection: Path, watching: Watching
) -> None:
    for root in ("labs", "solutions"):
        shutil.copytree(collection / root / "lab03_swapped_order", collection / root / "lab04_second")
    metadata = collection / "labs" / "lab04_second" / "lab.toml"
    text = metadata.read_text().replace('"03"', '"04"').replace('"swapped_order"', '"second"')
    metadata.write_text(text.replace("The arm that overshoots", "The second arm"))
    catalog.all_labs.cache_clear()
    with watching() as terminal:
        terminal.until(WAITING)
        shutil.copy(lab.solution / "policy.py", started_lab)
        assert "✓ passed" in terminal.until(WAITING)
        terminal.press("n")
        shown = terminal.until(WAITING)
        assert "04 · The second arm" in shown
        assert "not fixed yet" in shown
        terminal.press("q")
        assert terminal.ended() == 0
    now = progress.read(in_workspace).progress
    assert (now.status("03"), now.status("04")) == ("passed", "started")


ENDLESS = {
    "at-import": "import time\ntime.sleep(100_000)\n",
    "after-a-check": "import time\ndef normalise(action, mean, std):\n    time.sleep(100_000)\n",
}


@pytest.mark.extended
@pytest.mark.parametrize("endless", ENDLESS.values(), ids=ENDLESS)
def test_a_save_ends_the_grade_of_the_older_file_which_is_neither_shown_nor_recorded(
    endless: str, started_lab: Path, in_workspace: Workspace, lab: Lab, watching: Watching
) -> None:
    solution = (lab.solution / "policy.py").read_text()
    with watching() as terminal:
        assert "not fixed yet" in terminal.until(WAITING)
        started_lab.write_text(solution + "\n" + endless)
        terminal.until("✓ actions come out" if "normalise" in endless else "03 · The arm that overshoots")
        started_lab.write_text(solution)
        shown = terminal.until(WAITING)
        terminal.press("q")
        assert terminal.ended() == 0
    assert "this grade is out of date, and a new one begins" in shown
    assert "✓ passed" in shown
    assert "not fixed yet" not in shown
    assert progress.read(in_workspace).progress.labs["03"].grades == 2


def test_ctrl_c_ends_it_and_restores_the_terminal(started_lab: Path, watching: Watching) -> None:
    with watching() as terminal:
        terminal.until(KEYS)
        terminal.press("\x03")
        assert terminal.ended() == 130
    assert "Nothing is left running" in terminal.shown


def test_a_stopped_and_continued_process_reads_single_keys_again(started_lab: Path, watching: Watching) -> None:
    with watching() as terminal:
        terminal.until(KEYS)
        process = psutil.Process(terminal.process.pid)
        process.suspend()
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        terminal.read_lines()  # as a shell does when a job stops
        process.resume()
        terminal.press("q")
        assert terminal.ended() == 0

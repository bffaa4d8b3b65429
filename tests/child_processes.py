"""Processes that a test starts: each in a group of its own, killed as a whole however the test ends.

`run` is `subprocess.run` and `started` is `subprocess.Popen`, with that promise. What still gets away is found by
`tests/conftest.py` after each test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HANG_S = 600
"""Bounds a hang, and nothing else: no healthy process of a test comes near it on however loaded a machine."""

Command = Sequence[str | Path]


def run(command: Command, *, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run to the end, with both outputs as text. Raises TimeoutExpired after `HANG_S`."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    with started(command, **options) as process:
        out, err = process.communicate(timeout=HANG_S)
        done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{out}{err}"
    return done


@contextlib.contextmanager
def started(command: Command, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A running process. At the end of the block it and all that it left in its group are killed and reaped."""
    with _interruptible():
        process = subprocess.Popen(list(map(str, command)), start_new_session=True, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: EPERM where only zombies are left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """A shell's background job inherits SIGINT ignored, and so would what it starts; a handler is not inherited."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

"""Runs a function in a forked child process that may abort, hang or run out of memory without affecting the caller."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

if sys.platform != "win32":
    import resource

_SLICE_S = 1.0
_BLOCKED_S = 10.0
"""A child that waits this long without using the processor waits forever: see `_Progress`."""


class ChildFailed(Exception):  # noqa: N818 - it describes the child, not an error of the caller
    """The child ended without a result. The message is one sentence with the reason."""


def in_child(function: Callable[[], Any], seconds: float) -> Any:
    """The JSON result of `function()`, computed in a child that has ended when this returns. Raises ChildFailed.

    The child has a copy of the caller's memory, so the model needs no pickling. It uses one thread, because PyTorch's
    worker threads do not survive a fork and a parallel operation would wait for them forever.
    """
    if not hasattr(os, "fork"):
        raise ChildFailed("This system cannot fork a process.")
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as errors, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: the child uses none of them
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _run_in_child(function, writing, errors.fileno())
        os.close(writing)
        try:
            answer = _read(reading, time.monotonic() + seconds, _Progress(child))
        finally:
            os.close(reading)
            status = _end(child)
        if answer is None:
            raise ChildFailed(f"It did not end within {seconds:g} s, or waited for a lock of this process.")
        if not answer:
            raise ChildFailed(_how_it_ended(status, errors))
    document = json.loads(answer)
    if "failed" in document:
        raise ChildFailed(document["failed"])
    return document["answer"]


def _run_in_child(function: Callable[[], Any], writing: int, errors: int) -> None:
    """All that the child does. Never returns, runs no exit handler and writes nothing to the caller's terminal."""
    try:
        gc.freeze()  # an object whose threads are the caller's, a process group for instance, could not be freed here
        faulthandler.disable()  # it may hold a copy of the caller's stderr
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        torch.set_num_threads(1)
        try:
            document = {"answer": function()}
        except BaseException as error:
            document = {"failed": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"}
        with os.fdopen(writing, "w") as pipe:
            json.dump(document, pipe)
    finally:
        os._exit(0)


class _Progress:
    """Whether a process still works, as Linux accounts for it; elsewhere it is taken to work.

    A lock that another thread of the caller held while it forked is never released in the child. A child that waits for
    one sleeps and uses no processor time, however busy the machine is; one that waits for its turn is runnable.
    """

    def __init__(self, process: int) -> None:
        self._stat = Path(f"/proc/{process}/stat")
        self._used, self._since = -1, time.monotonic()

    @property
    def blocked(self) -> bool:
        """Whether it has slept without using the processor for `_BLOCKED_S` seconds."""
        try:
            fields = self._stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            return False
        state, used = fields[0], int(fields[11]) + int(fields[12])
        if used != self._used or state != "S":
            self._used, self._since = used, time.monotonic()
        return time.monotonic() - self._since > _BLOCKED_S


def _read(pipe: int, deadline: float, progress: _Progress) -> bytes | None:
    """All that comes until the other end closes; None if the deadline comes first or the child is blocked."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, min(_SLICE_S, deadline - time.monotonic())))
        if not ready:
            if time.monotonic() >= deadline or progress.blocked:
                return None
            continue
        part = os.read(pipe, 65536)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _end(child: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _how_it_ended(status: int, errors: Any) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    output = next((line for line in lines if "what():" in line), lines[0] if lines else "")
    cause = f"was ended by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else "ended early"
    return f"The child process {cause}" + (f" ({output[:160]})." if output else ".")

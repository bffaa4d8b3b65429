"""Run a function in a forked child that may abort, hang or run out of memory without harm to the caller."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch


class ChildFailed(Exception):  # noqa: N818 - what the child did, not an error of ours
    """The child ended without an answer; the message is one sentence why."""


def in_child(function: Callable[[], Any], seconds: float) -> Any:
    """`function()`'s JSON answer, computed in a child that is gone when this returns. Raises ChildFailed.

    The child sees the caller's memory as it is now, so the model needs no pickling. It works with one thread: PyTorch's
    worker threads do not survive a fork, and a parallel operation would wait for them for ever.
    """
    if not hasattr(os, "fork"):
        raise ChildFailed("This system cannot fork a process.")
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as errors, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: the child uses none of them
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _live_and_die(function, writing, errors.fileno())
        os.close(writing)
        try:
            answer = _read(reading, time.monotonic() + seconds)
        finally:
            os.close(reading)
            status = _end(child)
        if answer is None:
            raise ChildFailed(f"It did not end within {seconds:g} s.")
        if not answer:
            raise ChildFailed(_epitaph(status, errors))
    document = json.loads(answer)
    if "failed" in document:
        raise ChildFailed(document["failed"])
    return document["answer"]


def _live_and_die(function: Callable[[], Any], writing: int, errors: int) -> None:
    """The child's whole life. Never returns, runs no exit handler and writes nothing to the caller's terminal."""
    try:
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


def _read(pipe: int, deadline: float) -> bytes | None:
    """All that comes until the other end closes; None if the deadline comes first."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(pipe, 65536)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _end(child: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _epitaph(status: int, errors: Any) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    said = next((line for line in lines if "what():" in line), lines[0] if lines else "")
    cause = f"was ended by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else "ended early"
    return f"The process that examined it {cause}" + (f" ({said[:160]})." if said else ".")

"""Which processes of the tests are alive: descendants of this one, and orphans with its mark in their environment."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Collection

import psutil

MARK = "TESTS_OF_ONE_PROCESS"
ENDING_S = 30
"""How long a process that is ending may take. Only a test that leaves one behind waits for it."""

# Python's own: one for each process that ever used shared memory or a named semaphore, and it ends with that process.
_LASTING = "multiprocessing.resource_tracker"


class Descendants:
    """The living processes that this process has started, directly or not, since the object was made."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        os.environ[MARK] = self._mark
        self._others = set(psutil.pids())

    def living(self) -> set[psutil.Process]:
        """Zombies included. Costs little: only processes that were not there at the last call are looked at."""
        now = set(psutil.pids()) - {os.getpid()}
        self._others &= now
        found = set()
        for pid in now - self._others:
            try:
                process = psutil.Process(pid)
                ours = self._is_ours(process)
            except psutil.NoSuchProcess:
                continue
            if ours:
                found.add(process)
            else:
                self._others.add(pid)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        if os.getpid() in (parent.pid for parent in process.parents()):
            return _LASTING not in " ".join(_arguments(process))
        try:
            return process.environ().get(MARK) == self._mark
        except (psutil.AccessDenied, psutil.ZombieProcess, OSError):
            return False


def end(processes: Collection[psutil.Process]) -> list[str]:
    """Wait for processes that are ending, kill those that stay, and say which had to be killed."""
    deadline = time.monotonic() + ENDING_S
    while time.monotonic() < deadline and any(process.is_running() for process in processes):
        if any(_is_zombie(process) for process in processes):
            break  # it has ended and was never waited for
        time.sleep(0.02)
    stayed = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            stayed.append(f"{process.pid} ({process.status()}): {' '.join(_arguments(process)) or process.name()}")
            process.kill()
    psutil.wait_procs(processes, timeout=ENDING_S)
    return stayed


def _is_zombie(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE and process.ppid() == os.getpid()
    return False


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.AccessDenied, psutil.ZombieProcess):
        return []

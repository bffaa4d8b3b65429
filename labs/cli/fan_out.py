"""Runs several `lab` commands at once, each in its own process, and ends them all if this one is interrupted."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

PATIENCE_SECONDS = 15.0
"""How long an interrupted process may take to end its children before it is killed."""


@dataclass(frozen=True)
class Finished:
    """One command that has ended."""

    key: str
    exit_code: int
    stdout: str
    stderr: str


def fan_out(commands: Mapping[str, Sequence[str]], jobs: int) -> Iterator[Finished]:
    """Run `lab ARGS…` for each key, at most `jobs` at a time, and yield each as it ends.

    On an exception, KeyboardInterrupt included, and if the consumer stops early, no process is left running.
    """
    waiting: queue.SimpleQueue[tuple[str, Sequence[str]]] = queue.SimpleQueue()
    for item in commands.items():
        waiting.put(item)
    finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
    running = _Running()
    threads = [
        threading.Thread(target=_work, args=(waiting, finished, running), daemon=True)
        for _ in range(max(1, min(jobs, len(commands))))
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in commands:
            yield finished.get()
    finally:
        running.end()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)


class _Running:
    """The running processes. After `end`, no more are started."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._ended = False

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._ended:
                return None
            process = subprocess.Popen(
                [sys.executable, "-m", "labs.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self._processes.add(process)
            return process

    def done(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._processes.discard(process)

    def end(self) -> None:
        """Interrupt each process as Ctrl-C would, and kill it if it does not end."""
        with self._lock:
            self._ended = True
            left = list(self._processes)
        for process in left:
            process.terminate()
        for process in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_SECONDS)
                continue
            process.kill()


def _work(
    waiting: queue.SimpleQueue[tuple[str, Sequence[str]]], finished: queue.SimpleQueue[Finished], running: _Running
) -> None:
    while True:
        try:
            key, arguments = waiting.get_nowait()
        except queue.Empty:
            return
        process = running.start(arguments)
        if process is None:
            return
        stdout, stderr = process.communicate()
        running.done(process)
        finished.put(Finished(key, process.returncode, stdout, stderr))

"""How much a child may use: time, memory, file size, output. Standard library only."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MEBIBYTE = 1024 * 1024
LOST_PIPES = 71
"""Exit status of a child whose submission closed the descriptors for its replies."""


@dataclass(frozen=True)
class Limits:
    """Limits of one grade. Exceeding one is the submission's failure."""

    wall_s: float = 120.0
    """Time in which the child works on requests, its own imports excluded; see `WallClock` for busy machines."""
    cpu_s: int = 60
    """CPU seconds of any one process of the submission, imports excluded."""
    memory_mb: int = 4096
    """Address space of any one process, MiB, beyond what the child has mapped once it has imported torch and the probe.

    Builds of torch differ in what an import maps: about 0.6 GiB for the CPU, 3 GiB for CUDA, with or without a GPU.
    """
    file_mb: int = 256
    """Largest file it may write, MiB; also the size of its private folder, with namespaces."""
    tasks: int = 512
    """Processes and threads, if the system counts them separately from the user's other processes."""
    output_bytes: int = 4 * MEBIBYTE
    """Printed bytes after which a submission is stopped."""
    reply_bytes: int = 64 * MEBIBYTE
    """Largest single reply. The grader keeps all replies as evidence, so this limits its memory too."""
    start_s: float = 180.0
    """Time for the start of the sandbox; generous, because a busy machine is not the learner's fault."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the wire."""
        return asdict(self)


MOST_BUSY = 4.0
"""A submission that fills the machine by itself must not get more and more time."""


def busyness() -> float:
    """How many processes want each processor now: from 1 to `MOST_BUSY`."""
    return min(MOST_BUSY, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


class WallClock:
    """The wall time of one grade: it runs only while the child works, and slower on a busy machine.

    What the grader computes between two requests is not counted. The limit is stretched by the busiest moment seen at
    the start and whenever the time would be up.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._busy = busyness()
        self._used_s = 0.0
        self._began = time.monotonic()

    @property
    def limit_s(self) -> float:
        """The seconds allowed, stretched."""
        return self._limit_s * self._busy

    def is_over(self) -> bool:
        """Whether the time is up."""
        if self._elapsed() < self.limit_s:
            return False
        self._busy = max(self._busy, busyness())
        return self._elapsed() >= self.limit_s

    def __enter__(self) -> WallClock:
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._used_s = self._elapsed()
        self._began = time.monotonic()

    def _elapsed(self) -> float:
        return self._used_s + time.monotonic() - self._began


def apply_to_this_process(limits: Limits, *, own_task_count: bool) -> None:
    """Limit this process and its descendants; called after the imports and before the learner's code.

    The memory limit is added to the address space that this process has now. A process that the submission starts
    inherits the sum, in which torch can be imported once more.

    A limit that the system refuses (RLIMIT_AS on macOS) is skipped. `own_task_count` is True if this process has its
    own user namespace, in which RLIMIT_NPROC does not count the user's other processes.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime) + 1 + limits.cpu_s
    _lower(resource.RLIMIT_CPU, cpu, slack=1)  # SIGXCPU, which names the reason; SIGKILL a second later
    _lower(resource.RLIMIT_AS, mapped_bytes() + limits.memory_mb * MEBIBYTE)
    _lower(resource.RLIMIT_FSIZE, limits.file_mb * MEBIBYTE)
    _lower(resource.RLIMIT_CORE, 0)
    if own_task_count and os.getuid() != 0:  # the kernel never applies RLIMIT_NPROC to root
        _lower(resource.RLIMIT_NPROC, limits.tasks)


def mapped_bytes() -> int:
    """The address space of this process; 0 where the system does not say (macOS, a masked /proc)."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


def _lower(which: int, value: int, slack: int = 0) -> None:
    _, hard = resource.getrlimit(which)
    most = value + slack
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(which, (min(value, most), most))

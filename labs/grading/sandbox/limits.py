"""How much a child may use: time, memory, file size, output. Standard library only."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import asdict, dataclass
from typing import Any

MEBIBYTE = 1024 * 1024
LOST_PIPES = 71
"""Exit status of a child whose submission closed the descriptors for its replies."""


@dataclass(frozen=True)
class Limits:
    """Limits of one grade. Exceeding one is the submission's failure."""

    wall_s: float = 60.0
    """From the import of the learner's code; starting Python and importing torch does not count."""
    cpu_s: int = 120
    """CPU seconds of any one process of the submission, imports excluded."""
    memory_mb: int = 4096
    """Address space of any one process, MiB."""
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


def apply_to_this_process(limits: Limits, *, own_task_count: bool) -> None:
    """Limit this process and its descendants; called after the imports and before the learner's code.

    A limit that the system refuses (RLIMIT_AS on macOS) is skipped. `own_task_count` is True if this process has its
    own user namespace, in which RLIMIT_NPROC does not count the user's other processes.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime) + 1 + limits.cpu_s
    _lower(resource.RLIMIT_CPU, cpu, slack=1)  # SIGXCPU, which names the reason; SIGKILL a second later
    _lower(resource.RLIMIT_AS, limits.memory_mb * MEBIBYTE)
    _lower(resource.RLIMIT_FSIZE, limits.file_mb * MEBIBYTE)
    _lower(resource.RLIMIT_CORE, 0)
    if own_task_count and os.getuid() != 0:  # the kernel never applies RLIMIT_NPROC to root
        _lower(resource.RLIMIT_NPROC, limits.tasks)


def _lower(which: int, value: int, slack: int = 0) -> None:
    _, hard = resource.getrlimit(which)
    most = value + slack
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(which, (min(value, most), most))

"""How much a child may use: time, memory, file size, output. Standard library only."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import asdict, dataclass
from typing import Any

MEBIBYTE = 1024 * 1024
LOST_PIPES = 71
"""Exit status of a child whose submission closed the descriptors it answers on."""


@dataclass(frozen=True)
class Limits:
    """Limits of one grade; a breach is the submission's failure."""

    wall_s: float = 60.0
    """From the moment the learner's code is loaded; starting Python and importing torch is the grader's own time."""
    cpu_s: int = 120
    """CPU seconds of any one process of the submission, imports excluded."""
    memory_mb: int = 4096
    """Address space of any one process, MiB."""
    file_mb: int = 256
    """Largest file it may write, MiB; also the size of its private folder where that can be enforced."""
    tasks: int = 512
    """Processes and threads, where the system counts them apart from the person's own."""
    output_bytes: int = 4 * MEBIBYTE
    """Printed text after which a submission is stopped as a flood."""
    reply_bytes: int = 64 * MEBIBYTE
    """Largest single reply. All replies of a grade are kept as evidence, so this is the grader's memory too."""
    start_s: float = 180.0
    """Time for the grader's own start, generous because a loaded machine is not the learner's fault."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the wire."""
        return asdict(self)


def apply_to_this_process(limits: Limits, *, own_task_count: bool) -> None:
    """Limit this process and its descendants; called after the imports and before the learner's code.

    A system that refuses one of them (macOS and RLIMIT_AS) goes without it. `own_task_count` says that this
    process is in a user namespace of its own, where RLIMIT_NPROC does not count the person's other processes.
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

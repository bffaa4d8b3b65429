"""CPU seconds of this process and of the grader's children.

The fork server does not wait for the children it forks, so the kernel never adds their time to its own: they are asked
while they run.
"""

from __future__ import annotations

import os

import psutil


def of_children() -> float:
    """CPU seconds so far of the running submissions, with their supervisors; the fork server itself is not counted."""
    total = 0.0
    for server in psutil.Process(os.getpid()).children():
        for process in server.children(recursive=True):
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue  # it has just ended
            total += times.user + times.system + times.children_user + times.children_system
    return total

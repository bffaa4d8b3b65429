"""The fallback containment without namespaces: adopt every descendant, then kill them all.

On macOS there is no subreaper. The child's process group is killed, and a process that left it can escape.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path


def kill_descendants(child: int) -> None:
    """Kill the child and everything it started; return when nothing is left."""
    while True:
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        for pid in children_of(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            # A process that dies may leave orphans to us, which the next round kills.
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children_of(parent: int) -> list[int]:
    """The children of a process, from /proc; empty on a system without it."""
    if sys.platform != "linux":
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The command name is in parentheses and may contain anything; the fields after it do not.
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(after_name[1]) == parent:
                    found.append(int(entry.name))
    return found

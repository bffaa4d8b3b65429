"""Which protections this system grants. They are tried in a separate process, because that needs a fork."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass

from labs.grading.errors import SandboxError
from labs.grading.sandbox import kernel, namespaces, signals
from labs.grading.sandbox.cold_child import environment, python_command
from labs.grading.sandbox.launch import outside_settings


@dataclass(frozen=True)
class Protection:
    """One protection: whether this system grants it, what it promises, and what its absence means."""

    name: str
    active: bool
    promise: str
    without: str


def protections() -> tuple[Protection, ...]:
    """Try each one on this system. Raises SandboxError if no process can be started."""
    try:
        found = subprocess.run(
            python_command("labs.grading.sandbox.protections"),
            env=environment() | outside_settings(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"The process that tries the protections could not be started: {error}.") from None
    granted: dict[str, bool] = json.loads(found.stdout)
    return tuple(Protection(name, granted[name], *texts) for name, texts in _PROMISES.items())


_PROMISES = {
    "namespaces": (
        "a submission writes no file of yours and reaches no network",
        "A submission can write your files and reach the network from C code.",
    ),
    "signals to one process": (
        "a submission cannot end another process of yours",
        "A submission can end a process of yours whose number it knows or guesses.",
    ),
    "signals to all processes": (
        "a submission cannot end all of your processes",
        "A submission's `kill(-1)` ends every process of yours.",
    ),
    "subreaper": (
        "no process of a submission outlives its grade",
        "A process that leaves the child's process group can outlive a grade.",
    ),
    "memory limit": (
        "a submission cannot use all of the memory",
        "A submission can use all of the memory.",
    ),
}
"""By name: what is promised, and what can happen without it."""


def main() -> None:
    """Entry of the process that tries."""
    limited = True
    try:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
    except (OSError, ValueError):
        limited = False
    isolated, adopts = namespaces.available(), kernel.become_subreaper()
    kernel.drop_capabilities()
    reach = "its own processes" if isolated else signals.contain()
    granted = {
        "namespaces": isolated,
        "signals to one process": reach == "its own processes",
        "signals to all processes": reach != "every process",
        "subreaper": adopts,
        "memory limit": limited,
    }
    os.write(sys.stdout.fileno(), json.dumps(granted).encode())

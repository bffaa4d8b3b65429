"""What this machine offers, one condition at a time; each explains what its absence means."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from labs.learner import progress
from labs.learner.progress import ProgressError
from labs.learner.workspace import Workspace, WorkspaceError

State = Literal["ok", "limited", "missing"]

REQUIRED = (
    "torch",
    "transformers",
    "gymnasium",
    "safetensors",
    "numpy",
    "msgspec",
    "filelock",
    "pytest",
    "rich",
    "typer",
)
OPTIONAL = {
    "watchfiles": "`lab watch` needs it: `pip install watchfiles`.",
    "lightning": "The labs about Lightning need the extra: `pip install 'vla-debug-lab[frameworks]'`.",
    "hydra-core": "The labs about Hydra need the extra: `pip install 'vla-debug-lab[frameworks]'`.",
}


@dataclass(frozen=True)
class Condition:
    """One condition: what was found, and what that means if it is not `ok`."""

    name: str
    state: State
    found: str
    meaning: str = ""

    def to_json(self) -> dict[str, str]:
        """The condition as JSON."""
        return asdict(self)


def examine(workspace: Callable[[], Workspace]) -> list[Condition]:
    """Check everything that the lab uses. `workspace` resolves the learner's workspace and may raise WorkspaceError."""
    return [
        _python(),
        *[_package(name) for name in REQUIRED],
        *[_optional(name, meaning) for name, meaning in OPTIONAL.items()],
        _processor(),
        _gpu(),
        *_sandbox(),
        _limits(),
        _workspace(workspace),
    ]


def _python() -> Condition:
    return Condition("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _package(name: str) -> Condition:
    try:
        return Condition(name, "ok", version(name))
    except PackageNotFoundError:
        return Condition(name, "missing", "not installed", "`pip install 'vla-debug-lab[labs]'` installs it.")


def _optional(name: str, meaning: str) -> Condition:
    try:
        return Condition(name, "ok", version(name))
    except PackageNotFoundError:
        return Condition(name, "limited", "not installed", meaning)


def _processor() -> Condition:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Condition("cpu", "ok", f"{cores} cores; a grade uses one, `lab grade --all --jobs {cores}` uses all")


def _gpu() -> Condition:
    """Tried in another process: a driver may crash on the first call."""
    code = (
        "import torch; c = torch.cuda.is_available(); "
        "print(torch.cuda.get_device_name(0) if c else 'mps' if torch.backends.mps.is_available() else '')"
    )
    try:
        tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Condition(
            "gpu", "limited", "PyTorch did not answer", "Labs run on the CPU. Try `python -c 'import torch'`."
        )
    name = tried.stdout.strip()
    if tried.returncode != 0:
        last = (tried.stderr.strip().splitlines() or ["no message"])[-1]
        return Condition(
            "gpu", "missing", f"importing torch failed: {last}", "No lab can run until `import torch` works."
        )
    if not name:
        return Condition("gpu", "ok", "none; every lab runs on the CPU")
    return Condition("gpu", "ok", f"{name}; labs run on the CPU, device checks use it too")


def _sandbox() -> list[Condition]:
    """What the sandbox promises elsewhere and cannot keep here; SECURITY.md has the table."""
    from labs.grading import SandboxError, protections

    try:
        tried = protections()
    except SandboxError as error:
        return [Condition("sandbox", "missing", "no process could be started", str(error))]
    return [
        Condition("sandbox", "ok", promise)
        if one.active
        else Condition("sandbox", "limited", f"not promised on this machine: {promise}", f"{one.without} {_ENOUGH}")
        for one in tried
        for promise in [_IN_DETAIL.get(one.name, one.promise)]
    ]


_IN_DETAIL = {"memory limit": "one process of a submission cannot use more than its limit of memory"}
"""Promises that the sandbox states more broadly than it keeps them: memory is limited per process, not in total."""
_ENOUGH = "That is no problem for your own code; use a container for code from people you do not trust."


def _limits() -> Condition:
    try:
        import resource
    except ImportError:
        return Condition(
            "limits", "limited", "no rlimits", "A submission that uses all memory can slow the machine down."
        )
    from labs.grading.sandbox.limits import MEBIBYTE, Limits

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard not in (resource.RLIM_INFINITY, -1) and hard < mapped_by_torch() + Limits.memory_mb * MEBIBYTE:
        found = f"the address space is limited to {hard >> 20} MiB"
        return Condition("limits", "limited", found, "Labs that need more will run out of memory. Raise `ulimit -v`.")
    return Condition("limits", "ok", "memory and CPU of a submission can be limited")


def mapped_by_torch() -> int:
    """The address space of a process that has imported torch, in bytes; 0 where it cannot be measured."""
    code = "import torch; from labs.grading.sandbox.limits import mapped_bytes; print(mapped_bytes())"
    try:
        tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return int(tried.stdout)


def _workspace(resolve: Callable[[], Workspace]) -> Condition:
    try:
        found = resolve()
    except WorkspaceError as error:
        return Condition("workspace", "missing", "not found", str(error))
    if not found.exists:
        return Condition("workspace", "ok", f"{found.root}, created by the first `lab start`")
    nearest: Path = found.root
    if not os.access(nearest, os.W_OK):
        return Condition("workspace", "missing", f"{nearest} is read-only", "`lab init DIR` creates one elsewhere.")
    try:
        progress.check(found)
    except (ProgressError, OSError) as error:
        return Condition("workspace", "missing", "its progress cannot be read", str(error))
    return Condition("workspace", "ok", str(found.root))

"""Keeps a submission's signals away from the user's other processes where there is no PID namespace.

Landlock (Linux 6.12) refuses every signal that leaves the child and its descendants. On an older Linux a seccomp filter
refuses those to a group or to everything, `killpg(n)` and `kill(-1)`; one process can then still be signalled by its
number. macOS has neither. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from typing import Literal

from labs.grading.sandbox import kernel

Reach = Literal["its own processes", "single processes", "every process"]
"""Whom a submission can signal."""

_SYS_CREATE_RULESET, _SYS_RESTRICT_SELF = 444, 446  # the same numbers on every architecture
_VERSION, _ABI_WITH_SIGNALS, _SCOPE_SIGNAL = 1, 6, 2

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_KILL = {"x86_64": (0xC000003E, 62), "aarch64": (0xC00000B7, 129), "riscv64": (0xC00000F3, 129)}
"""By machine: the kernel's name of the architecture, and the number of kill(2)."""
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # classic BPF
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, little-endian
_ALLOW, _REFUSE, _SIGN = 0x7FFF0000, 0x00050001, 0x80000000  # refuse: with EPERM


def contain() -> Reach:
    """Limit the signals of this process and of its descendants permanently; returns whom they still reach.

    Needs a process that cannot gain privileges (`kernel.drop_capabilities`).
    """
    if sys.platform != "linux":
        return "every process"
    if refuse_all_outside():
        return "its own processes"
    return "single processes" if refuse_to_groups() else "every process"


def refuse_all_outside() -> bool:
    """By Landlock; False if this system's is too old or switched off."""
    if kernel.system_call(_SYS_CREATE_RULESET, None, 0, _VERSION) < _ABI_WITH_SIGNALS:
        return False
    rules = (ctypes.c_uint64 * 3)(0, 0, _SCOPE_SIGNAL)  # no rules about files and the network
    ruleset = kernel.system_call(_SYS_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset < 0:
        return False
    restricted = kernel.system_call(_SYS_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return restricted


def refuse_to_groups() -> bool:
    """By a seccomp filter: kill(2) with a negative number fails; False if the system has no filters."""
    if platform.machine() not in _KILL:
        return False
    architecture, kill = _KILL[platform.machine()]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 0, 4, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_EQUAL, 0, 2, kill),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_ANY_BIT, 1, 0, _SIGN),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    return kernel.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program))

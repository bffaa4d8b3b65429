"""A few Linux calls that Python does not offer, through libc. Without them each raises OSError or returns False."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC = (
    0x00020000,
    0x10000000,
    0x20000000,
    0x40000000,
    0x08000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 0x1000, 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave the parent's namespaces. A new PID namespace begins with the next fork."""
    _checked(_libc.unshare(flags) if sys.platform == "linux" else -1)


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2)."""
    encoded = [os.fsencode(text) if text is not None else None for text in (source, target, kind, options)]
    _checked(_libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]))


def set_read_only(target: str, read_only: bool) -> None:
    """Make a mount and all below it read-only, or writable again (mount_setattr, Linux 5.12)."""
    bit = _MOUNT_ATTR_RDONLY
    attributes = (ctypes.c_uint64 * 4)(bit if read_only else 0, 0 if read_only else bit, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    path = os.fsencode(target)
    result = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, ctypes.byref(attributes), size)
    _checked(result)


def die_with_parent() -> None:
    """Ask for SIGKILL when the parent dies."""
    prctl(_PR_SET_PDEATHSIG, 9)


def become_subreaper() -> bool:
    """Adopt every orphaned descendant; False if the system cannot."""
    return prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory(hidden: bool = True) -> None:
    """Make this process's memory and descriptors unreadable to others of the same user, or readable again."""
    prctl(_PR_SET_DUMPABLE, 0 if hidden else 1)


def drop_capabilities() -> None:
    """Give up every capability permanently, so that later code cannot undo a mount or a network."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    for capability in range(_LAST_CAPABILITY + 1):
        prctl(_PR_CAPBSET_DROP, capability)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def prctl(option: int, *values: int) -> bool:
    """prctl(2); False if the system refuses it or has none."""
    if sys.platform != "linux":
        return False
    rest = [*values, 0, 0, 0, 0][:4]
    with contextlib.suppress(AttributeError):
        return bool(_libc.prctl(option, *map(ctypes.c_ulong, rest)) == 0)
    return False


def system_call(number: int, *values: Any) -> int:
    """syscall(2) of Linux: its result, or -1."""
    return int(_libc.syscall(*(ctypes.c_long(one) if isinstance(one, int) else one for one in (number, *values))))


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code) if code else "this system cannot")

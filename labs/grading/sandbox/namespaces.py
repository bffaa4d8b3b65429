"""The strong containment: own processes, own network and a read-only file system, if the system permits namespaces.

A user namespace gives the right to create the others without root. Every process of a PID namespace dies with its init,
so nothing that the submission starts can outlive a grade. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from labs.grading.sandbox import kernel

_DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40


def available() -> bool:
    """Whether this system permits them. Tried in a temporary process, because a namespace cannot be left again."""
    if sys.platform != "linux" or os.environ.get("LAB_NO_NAMESPACES"):
        return False
    pid = os.fork()
    if pid == 0:
        try:
            enter()
            raise_loopback()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def enter() -> None:
    """Unshare the user, PID, network and IPC namespaces. The caller must have one thread; its next child is the init.

    The init unshares the mount namespace itself, so that the caller can still remove the private folder.
    """
    user, group = os.getuid(), os.getgid()
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC)
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def raise_loopback() -> None:
    """Bring up `lo`, the only interface: gloo needs it for its rendezvous."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", _IFF_UP | _IFF_RUNNING)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def seal_files(writable: Path, hidden: Sequence[Path], megabytes: int) -> None:
    """Make everything read-only except `writable`, a memory file system of that size, and hide the `hidden` paths.

    Called by the init. Each step is best effort: a container that forbids one (a masked /proc) still gets the others.
    """
    try:
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    except OSError:
        return  # never change mounts that other processes see
    with contextlib.suppress(OSError):
        kernel.set_read_only("/", True)
    plain = kernel.MS_NOSUID | kernel.MS_NODEV
    with contextlib.suppress(OSError):
        _keep_harmless_devices(writable)
    for folder in (str(writable), "/dev/shm"):
        with contextlib.suppress(OSError):
            kernel.mount("tmpfs", folder, "tmpfs", plain, f"size={megabytes}m,mode=1777")
    with contextlib.suppress(OSError):
        kernel.mount("proc", "/proc", "proc", plain)
    for path in hidden:
        with contextlib.suppress(OSError):
            if path.is_dir():
                kernel.mount("tmpfs", str(path), "tmpfs", plain | kernel.MS_RDONLY, "size=4k")
            elif path.exists():
                kernel.mount("/dev/null", str(path), None, kernel.MS_BIND)


def _keep_harmless_devices(staging: Path) -> None:
    """A `/dev` without disks and terminals: a read-only mount does not stop writes to a device such as a terminal.

    It is built on `staging`, which is covered by another mount afterwards.
    """
    kernel.mount("tmpfs", str(staging), "tmpfs", kernel.MS_NOSUID, "size=64k,mode=0755")
    for name in _DEVICES:
        if Path("/dev", name).exists():
            (staging / name).touch()
            kernel.mount(f"/dev/{name}", str(staging / name), None, kernel.MS_BIND)
    for name, target in _DEVICE_LINKS.items():
        (staging / name).symlink_to(target)
    (staging / "shm").mkdir()
    kernel.mount(str(staging), "/dev", None, kernel.MS_BIND | kernel.MS_REC)
    kernel.set_read_only("/dev", True)

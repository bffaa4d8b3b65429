"""Atomic writes: a file is there completely or not at all, even if the process is killed.

Write beside the target, flush to the disk, rename over it. Only the rename is visible to others. A writer holds a lock
on its temporary file, which the system releases when the writer dies: the next write removes the files of dead writers.

The file keeps its permissions, and a new one has those of any new file: other accounts read results and course packs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` with `content` in one step. Raises OSError, and then the old file is unchanged."""
    descriptor, temporary = _locked_file_beside(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with contextlib.suppress(OSError):  # there is no file to replace, or a file system without permissions
                os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error
        raise
    flush_folder(path.parent)
    _sweep(path)


def flush_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut, if the file system supports it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems cannot flush a folder; the file itself is safe already
    finally:
        os.close(descriptor)


def _locked_file_beside(path: Path) -> tuple[int, Path]:
    """An open temporary file that no sweep removes."""
    while True:
        temporary = path.parent / f"{_prefix(path)}{secrets.token_hex(4)}{_SUFFIX}"
        try:
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue
        with contextlib.suppress(OSError):  # a network file system without locks, where nothing is swept either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if temporary.exists():  # a sweep may have been between the two calls
            return descriptor, temporary
        os.close(descriptor)


def _sweep(path: Path) -> None:
    """Remove the temporary files of writers of `path` that are dead."""
    with contextlib.suppress(OSError):
        for entry in path.parent.iterdir():
            if entry.name.startswith(_prefix(path)) and entry.name.endswith(_SUFFIX):
                _remove_if_abandoned(entry)


def _remove_if_abandoned(temporary: Path) -> None:
    with contextlib.suppress(OSError):  # locked: its writer lives
        descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.unlink()
        finally:
            os.close(descriptor)


def _prefix(path: Path) -> str:
    return f".{path.name}."


_SUFFIX = ".tmp"

"""Atomic writes: a file is there completely or not at all, even if the process is killed.

Write beside the target, flush to the disk, rename over it. Only the rename is visible to others. A writer holds a lock
on its temporary file, which the system releases when the writer dies: the next write removes the files of dead writers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` with `content` in one step. Raises OSError, and then the old file is unchanged."""
    descriptor, temporary = _locked_file_beside(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
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
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path), suffix=_SUFFIX)
        temporary = Path(name)
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

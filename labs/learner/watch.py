"""Notices when a learner saves, by the content of the files: a touch is ignored, and a lost event does no harm."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

LOOK_AGAIN_MS = 1_000
"""How often the content is compared without an event; network folders and WSL send none."""
Content = tuple[str, ...]


@contextlib.contextmanager
def on_save(folder: Path, names: Sequence[str], saved: Callable[[], object]) -> Iterator[None]:
    """Inside the block, call `saved` from another thread each time the content of a named file changes.

    Raises ModuleNotFoundError without the package watchfiles.
    """
    import watchfiles

    stop = threading.Event()
    seen = content(folder, names)

    def look() -> None:
        nonlocal seen
        while not stop.is_set():
            # A folder that is not there, because it was moved or is being replaced, is looked for again.
            with contextlib.suppress(RuntimeError, OSError):
                events = watchfiles.watch(
                    folder,
                    rust_timeout=LOOK_AGAIN_MS,
                    yield_on_timeout=True,
                    debounce=200,
                    stop_event=stop,
                    raise_interrupt=False,
                )
                for _ in events:
                    now = content(folder, names)
                    if now != seen:
                        seen = now
                        saved()
            stop.wait(LOOK_AGAIN_MS / 1000)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        stop.set()
        looking.join()


def content(folder: Path, names: Sequence[str]) -> Content:
    """What the named files hold, to compare."""
    return tuple(_digest(folder / name) for name in names)


def version(folder: Path, names: Sequence[str]) -> Content:
    """The same, but two saves of the same content differ: nothing was written between two equal versions."""
    return (*content(folder, names), *(_stamp(folder / name) for name in names))


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""  # between an editor's delete and its rename


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"

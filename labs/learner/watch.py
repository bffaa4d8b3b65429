"""Notices when a learner saves, by the content of the files: a touch is ignored, and a lost event does no harm."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

LOOK_AGAIN_MS = 1_000
"""How often the content is compared without an event; network folders and WSL send none."""


def saves(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Yield at once, and then each time the content of a named file changes.

    Ends only by KeyboardInterrupt, or when the consumer stops asking.
    """
    import watchfiles

    seen = _content(folder, names)
    yield
    for _ in watchfiles.watch(folder, rust_timeout=LOOK_AGAIN_MS, yield_on_timeout=True, debounce=200):
        now = _content(folder, names)
        if now != seen:
            seen = now
            yield


def _content(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(_digest(folder / name) for name in names)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""  # between an editor's delete and its rename

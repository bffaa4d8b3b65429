"""Which line of the user's program is running: the innermost frame that is neither torch's nor debugkit's."""

from __future__ import annotations

import functools
import sys
import sysconfig
from pathlib import Path
from types import FrameType, TracebackType

from debugkit.finding import SourceLine

_HERE = f"{Path(__file__).resolve().parent}/"
_STDLIB = f"{sysconfig.get_paths()['stdlib']}/"
_PACKAGES_BETWEEN = frozenset({"torch", "functorch", "einops", "jaxtyping", "beartype"})
"""Packages that pass a user's call on: the line that matters is the one that called them."""


@functools.cache
def is_users(filename: str) -> bool:
    """Whether a file belongs to the program under examination rather than to what runs it."""
    if filename.startswith(("<frozen", _HERE)):
        return False
    parts = filename.split("/")
    for packages in ("site-packages", "dist-packages"):
        if packages in parts[:-1]:
            return parts[parts.index(packages) + 1].removesuffix(".py") not in _PACKAGES_BETWEEN
    return not filename.startswith(_STDLIB)


def user_line(frame: FrameType | None = None) -> SourceLine | None:
    """The user's line that is executing now (or in `frame`), innermost first; None if there is none."""
    current: FrameType | None = frame or sys._getframe(1)
    while current is not None:
        if is_users(current.f_code.co_filename):
            return SourceLine(current.f_code.co_filename, current.f_lineno, current.f_code.co_name)
        current = current.f_back
    return None


def raising_line(traceback: TracebackType | None) -> SourceLine | None:
    """The innermost line of the user's program in a traceback; None if debugkit's own code raised deeper than that."""
    found = None
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if is_users(filename):
            found = SourceLine(filename, traceback.tb_lineno, traceback.tb_frame.f_code.co_name)
        elif filename.startswith(_HERE):
            found = None
        traceback = traceback.tb_next
    return found

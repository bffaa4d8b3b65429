"""Source lines in the user's program: the current line, the line that raised, the line of a definition."""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from debugkit.finding import SourceLine

_HERE = f"{Path(__file__).resolve().parent}/"
_STDLIB = f"{sysconfig.get_paths()['stdlib']}/"
_PACKAGES_BETWEEN = frozenset({"torch", "functorch", "einops", "jaxtyping", "beartype"})
"""Packages that forward calls from the user's code. The relevant line is the one that calls them."""
_INTERCEPTS = "__torch_function__"


@functools.cache
def is_users(filename: str) -> bool:
    """Whether a file belongs to the examined program, and not to debugkit, torch or the standard library."""
    if filename.startswith(("<frozen", _HERE)):
        return False
    parts = filename.split("/")
    for packages in ("site-packages", "dist-packages"):
        if packages in parts[:-1]:
            return parts[parts.index(packages) + 1].removesuffix(".py") not in _PACKAGES_BETWEEN
    return not filename.startswith(_STDLIB)


@functools.cache
def is_own(filename: str) -> bool:
    """Whether a file belongs to the examined program and is not an installed package."""
    return is_users(filename) and not {"site-packages", "dist-packages"} & set(filename.split("/"))


def user_line(frame: FrameType | None = None) -> SourceLine | None:
    """The innermost line of the user's program on the current stack or the stack of `frame`; None if there is none."""
    return _innermost(frame or sys._getframe(1), is_users)


def own_line() -> SourceLine | None:
    """The innermost line of the program itself on the current stack; that of an installed package if there is none."""
    frame = sys._getframe(1)
    return _innermost(frame, is_own) or _innermost(frame, is_users)


def _innermost(frame: FrameType | None, belongs: Callable[[str], bool]) -> SourceLine | None:
    while frame is not None:
        if belongs(frame.f_code.co_filename):
            return _line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def caller_of_operation(frame: FrameType | None) -> FrameType | None:
    """The frame that called a torch function, outwards from one of a function mode that intercepts it.

    None if debugkit itself called it.
    """
    while frame is not None and frame.f_code.co_name != _INTERCEPTS:
        frame = frame.f_back
    while frame is not None and frame.f_code.co_name == _INTERCEPTS:  # of several modes
        frame = frame.f_back
    return None if frame is None or frame.f_code.co_filename.startswith(_HERE) else frame


@functools.lru_cache(maxsize=1024)
def _line(file: str, line: int, function: str) -> SourceLine:
    return SourceLine(file, line, function)


def raising_line(traceback: TracebackType | None, *, through_debugkit: bool = False) -> SourceLine | None:
    """The innermost line of the user's program in a traceback. None if the program called debugkit and debugkit raised.

    With `through_debugkit`, frames of debugkit are skipped like those of torch. For functions that debugkit wraps.
    """
    found = None
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if is_users(filename):
            found = SourceLine(filename, traceback.tb_lineno, traceback.tb_frame.f_code.co_name)
        elif filename.startswith(_HERE) and not through_debugkit:
            found = None
        traceback = traceback.tb_next
    return found


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function, or the class name of another callable."""
    return getattr(function, "__name__", type(function).__name__)


def code_of(function: Callable[..., Any]) -> CodeType | None:
    """The code that runs for a callable: of a function, a method, a partial or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    defined = getattr(function, "__func__", function)
    if not hasattr(defined, "__code__"):
        defined = getattr(type(function), "__call__", None)  # noqa: B004 - the code is read, not called
    code = getattr(defined, "__code__", None)
    return code if isinstance(code, CodeType) else None


def definition_line(function: Callable[..., Any]) -> SourceLine | None:
    """The first line of a Python function without its decorators. None for a callable without Python code."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else SourceLine(code.co_filename, code.co_firstlineno, code.co_name)


def one_line(error: BaseException) -> str:
    """`ValueError: …` with the first line of the message, and the lines that continue its sentence.

    A message of more than 160 characters is cut after a sentence or a word.
    """
    first, *further = str(error).strip().split("\n")
    for line in further:
        if first.rstrip().endswith((".", ":", "!", "?")) or not line.strip()[:1].islower():
            break
        first = f"{first.rstrip()} {line.strip()}"
    text = _shortened(first.strip().rstrip("."))
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


def _shortened(text: str, most: int = 160) -> str:
    """
    >>> _shortened("No such camera. Known are left and right.", 20), _shortened("No such camera", 10)
    ('No such camera …', 'No such …')
    """
    if len(text) <= most:
        return text
    kept = text[:most]
    sentence = max(kept.rfind(f"{end} ") for end in ".!?")
    kept = kept[:sentence] if sentence >= most // 2 else kept.rpartition(" ")[0] or kept
    return f"{kept.rstrip(' ,;:(')} …"

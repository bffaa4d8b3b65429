"""Find the variable that holds an object, by the program's own names (`losses`, `self.history`), and its line."""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from debugkit.finding import SourceLine
from debugkit.frames import is_users

_DEPTH = 4
_MOST_ITEMS = 2000  # searched in one container: its newest items
_LEAVES = (str, bytes, int, float, bool, type(None), type, ModuleType, torch.Tensor)


def find_holder(wanted: set[int]) -> tuple[str, Any, SourceLine | None] | None:
    """The variable of the running user program that leads to an object whose id() is in `wanted`.

    Returns the name (`self.history`), the object of that name, and the line that adds to it, if that can be found.
    Searches the frames on the stack, innermost first, and then their globals.
    """
    frames = [frame for frame in _stack() if is_users(frame.f_code.co_filename)]
    for frame in frames:
        for name, value in _locals(frame).items():
            if (found := _path(value, name, wanted, _DEPTH, set())) is not None:
                return *found, _adding_line(found[0], frame.f_code)
    for frame in frames:
        for name, value in list(frame.f_globals.items()):
            if not name.startswith("__") and (found := _path(value, name, wanted, _DEPTH, set())) is not None:
                return *found, _adding_line(found[0], frame.f_code)
    return None


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _locals(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables. Up to Python 3.12 the frame caches `f_locals`, so the cache is cleared."""
    cached = frame.f_locals
    copied = dict(cached)
    if type(cached) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        cached.clear()  # it would keep every variable alive until the function returns
    return copied


def _path(value: Any, name: str, wanted: set[int], depth: int, seen: set[int]) -> tuple[str, Any] | None:
    """The name that leads to a wanted object, and the value of that name: the object itself or its container."""
    if id(value) in wanted:
        return name, value
    if depth == 0 or isinstance(value, _LEAVES) or id(value) in seen:
        return None
    seen.add(id(value))
    if isinstance(value, Mapping | list | tuple | set | deque):
        items = value.values() if isinstance(value, Mapping) else value
        for item in list(items)[-_MOST_ITEMS:]:
            if _path(item, name, wanted, depth - 1, seen) is not None:
                return name, value
        return None
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict) or (callable(value) and not isinstance(value, torch.nn.Module)):
        return _in_closure(value, wanted, depth, seen)
    for key, item in list(attributes.items()):
        if (found := _path(item, f"{name}.{key}", wanted, depth - 1, seen)) is not None:
            return found
    return None


def _in_closure(value: Any, wanted: set[int], depth: int, seen: set[int]) -> tuple[str, Any] | None:
    function = value.__func__ if isinstance(value, MethodType) else value
    if not isinstance(function, FunctionType):  # other objects may answer to any name
        return None
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            held = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        if (found := _path(held, name, wanted, depth - 1, seen)) is not None:
            return found
    return None


def _adding_line(name: str, code: CodeType) -> SourceLine | None:
    """The line that appends to `name`, adds to it, or sets one of its items: of the function, else the only one of its
    file, as in a hook or in `forward`."""
    last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    own = range(code.co_firstlineno, last + 1)
    for pattern in _patterns(name):
        for number in own:
            if pattern.search(linecache.getline(code.co_filename, number)):
                return SourceLine(code.co_filename, number, code.co_name)
    inside = f"self.{name.rpartition('.')[2]}" if "." in name else name
    lines = list(enumerate(linecache.getlines(code.co_filename), 1))
    found = [number for number, line in lines if _patterns(inside)[0].search(line)]
    return SourceLine(code.co_filename, found[0]) if len(found) == 1 else None


def _patterns(name: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What adds to the variable, and what assigns a value made from it."""
    target = re.escape(name)
    methods = "append|appendleft|extend|insert|add|update|setdefault"
    item = r"(\[[^\]]*\])"
    adds = re.compile(rf"(?<![\w.]){target}({item}?\.({methods})\(|{item}?\s*\+=|{item}\s*=[^=])")
    return adds, re.compile(rf"(?<![\w.]){target}\s*=[^=].*(?<![\w.]){target}(?!\w)")

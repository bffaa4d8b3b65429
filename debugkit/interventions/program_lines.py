"""Lines of the program that are no longer on the stack: where an optimizer was built, what collates a batch.

They are searched in the source: in the files of the calling program, of the loss function and of the model. A line is
named only if it is the only one of its kind.
"""

from __future__ import annotations

import ast
import functools
import sys
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from debugkit.finding import SourceLine
from debugkit.frames import definition_line, is_own
from debugkit.held_values import attributes_of
from debugkit.setup import TrainingSetup

_BUILT: weakref.WeakKeyDictionary[torch.optim.Optimizer, SourceLine] = weakref.WeakKeyDictionary()
"""Found lines. When a loop has ended, its file and the names of its variables are no longer on the stack."""


def built_at(optimizer: torch.optim.Optimizer, setup: TrainingSetup) -> SourceLine | None:
    """The line that calls the optimizer's class; None if there is none, or several that are not told apart."""
    line = _BUILT.get(optimizer) or line_that_built(optimizer, _files(setup))
    if line is not None:
        _BUILT[optimizer] = line
    return line


def line_that_built(value: Any, files: Iterable[str]) -> SourceLine | None:
    """The only call of the value's class in these files, or the only one whose result has the value's name."""
    calls = _lines(type(value).__name__, files)
    if len(calls) > 1 and all(target for _, target in calls):
        names = names_of(value)
        calls = [(line, target) for line, target in calls if target in names]
    return calls[0][0] if len(calls) == 1 else None


def only_call(name: str, files: Iterable[str]) -> SourceLine | None:
    """The only call of a function, class or method with this name in these files."""
    calls = _lines(name, files)
    return calls[0][0] if len(calls) == 1 else None


def _lines(name: str, files: Iterable[str]) -> list[tuple[SourceLine, str]]:
    found = ((file, call) for file in dict.fromkeys(files) for call in _calls(file).get(name, ()))
    return [(SourceLine(file, line), target) for file, (line, target) in found]


def names_of(value: Any) -> set[str]:
    """The names that the program's running code has for a value: of variables, and of attributes of its objects.

    An argument's name does not tell which line built the value.
    """
    found: set[str] = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            given = frame.f_code.co_varnames[: frame.f_code.co_argcount]
            local = ((name, held) for name, held in frame.f_locals.items() if held is not value or name not in given)
            for name, held in (*frame.f_globals.items(), *local):
                inside = attributes_of(held)
                found |= {name} if held is value else {key for key, item in inside.items() if item is value}
        frame = frame.f_back
    return found


def batches_made_at(loader: Any) -> SourceLine | None:
    """The program's own function that puts a batch of the loader together: its collate function or its data set's."""
    data = getattr(loader, "dataset", None)
    of_data = (getattr(type(data), name, None) for name in ("__getitem__", "__iter__"))
    functions = (getattr(loader, "collate_fn", None), *of_data)
    return next((line for function in functions if (line := own_definition(function)) is not None), None)


def own_definition(function: Any) -> SourceLine | None:
    """Where a function is defined, if it is the program's own."""
    line = definition_line(function) if callable(function) else None
    return line if line is not None and is_own(line.file) else None


def files_on_the_stack() -> Iterator[str]:
    """The program's own files whose code is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            yield frame.f_code.co_filename
        frame = frame.f_back


def _files(setup: TrainingSetup) -> Iterator[str]:
    yield from files_on_the_stack()
    for function in (setup.loss_fn, getattr(type(setup.model), "forward", None)):
        if (line := own_definition(function)) is not None:
            yield line.file


def _calls(file: str) -> dict[str, list[tuple[int, str]]]:
    """The lines of all calls in a file, by the last name of what is called, and the name that the result is given."""
    path = Path(file).resolve()
    return _calls_in(path, path.stat().st_mtime_ns) if path.is_file() else {}


@functools.lru_cache(maxsize=64)
def _calls_in(path: Path, _changed: int) -> dict[str, list[tuple[int, str]]]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    targets: dict[int, str] = {}
    found: dict[str, list[tuple[int, str]]] = {}
    for node in ast.walk(tree):  # an assignment comes before its value
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            targets[id(node.value)] = str(getattr(target, "attr", None) or getattr(target, "id", ""))
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            if name is not None:
                found.setdefault(name, []).append((node.lineno, targets.get(id(node), "")))
    return found

"""The base class of observations and results: frozen, plain data that can be written as JSON."""

from __future__ import annotations

import dataclasses
import linecache
from pathlib import Path
from typing import Any

from debugkit.finding import SourceLine
from debugkit.json_values import json_value


class PlainData:
    """A frozen dataclass of plain data: numbers, strings, tuples and nested PlainData. No tensors, no modules."""

    def to_json(self) -> dict[str, Any]:
        """The fields in JSON form: tuples as lists, NaN and infinities as `"nan"`, `"inf"`, `"-inf"`."""
        if not dataclasses.is_dataclass(self):
            raise TypeError(f"{type(self).__name__} is not a dataclass, so it has no fields to export")
        return {field.name: json_value(getattr(self, field.name)) for field in dataclasses.fields(self)}


def show_line(line: SourceLine) -> str:
    """`policy.py:20  v = v.detach()`: the path, relative to the working folder if inside it, and the source text."""
    return f"{short_line(line)}  {linecache.getline(line.file, line.line).strip()}".rstrip()


def short_line(line: SourceLine) -> str:
    """`policy.py:20`: the path, relative to the working folder if inside it."""
    path = Path(line.file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{line.line}"


def at_line(line: SourceLine | None) -> str:
    """` at policy.py:20`, to follow the name of an exception or an event; empty if the line is not known."""
    return f" at {short_line(line)}" if line else ""

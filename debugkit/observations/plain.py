"""What every observation and result is: frozen, plain data that goes to JSON as it stands."""

from __future__ import annotations

import dataclasses
import linecache
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from debugkit.finding import SourceLine


class PlainData:
    """A dataclass of plain data; `to_json()` returns what `json.dumps` takes, non-finite numbers as strings."""

    def to_json(self) -> dict[str, Any]:
        if not dataclasses.is_dataclass(self):
            raise TypeError(f"{type(self).__name__} is not a dataclass, so it has no fields to export")
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


def show_line(line: SourceLine) -> str:
    """`policy.py:20  v = v.detach()`: a path from the working folder where it is inside it, and the line's text."""
    path = Path(line.file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{line.line}  {linecache.getline(line.file, line.line).strip()}".rstrip()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value

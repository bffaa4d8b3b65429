"""The modules beside the pages, which are on no path: `load("_lessons")`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).resolve().parents[2] / "docs"


KOREAN = ".ko.md"
"""How the name of a Korean page ends: it is beside the English one."""


def english(pages: Iterable[Path]) -> list[Path]:
    """The pages without the Korean ones, in order: `tests/docs/test_translation.py` holds these to the English."""
    return sorted(page for page in pages if not page.name.endswith(KOREAN))


def load(name: str) -> ModuleType:
    """The module `docs/NAME.py`."""
    before = list(sys.path)
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = before

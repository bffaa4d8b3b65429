"""The modules beside the pages, which are on no path: `load("_lessons")`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).resolve().parents[2] / "docs"


def load(name: str) -> ModuleType:
    """The module `docs/NAME.py`."""
    before = list(sys.path)
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = before

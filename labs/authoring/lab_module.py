"""Imports one Python file of a lab or a solution, whose names (policy.py, figures.py) are everywhere the same."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_module(path: Path) -> ModuleType:
    """The file as a module of its own, under a name no other has. Raises ImportError, and whatever the file raises."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.parent.name}_{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its own module up while it is defined
    spec.loader.exec_module(module)
    return module

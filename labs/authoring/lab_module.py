"""Imports one Python file of a lab, a solution or a variant; many have the same name (policy.py, figures.py)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from labs.authoring.variants import find_variant
from labs.grading.catalog import Lab


def load_module(path: Path) -> ModuleType:
    """The file as a module with a unique name. Raises ImportError, and whatever the file raises."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.parent.name}_{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks up its module while it is defined
    spec.loader.exec_module(module)
    return module


def load_variant(lab: Lab, name: str) -> ModuleType:
    """The file that a wrong fix or alternative edits, as a module. Raises EditError, and whatever the file raises."""
    variant = find_variant(lab, name)
    (file,) = variant.edit.blocks
    module = ModuleType(f"{lab.name}_{name}")
    sys.modules[module.__name__] = module
    exec(compile(variant.files(lab)[file], f"{lab.name}/{variant.label}", "exec"), module.__dict__)
    return module

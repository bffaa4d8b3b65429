"""Imported by Python at the start of each script: `torch.utils.tensorboard` is a writer that writes nothing."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any


class _Writer(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch.utils.tensorboard":
            return None
        return importlib.util.spec_from_file_location(name, Path(__file__).with_name("tensorboard_writer.py"))


sys.meta_path.insert(0, _Writer())

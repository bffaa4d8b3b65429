"""Imported by Python at the start of each script: `torch.utils.tensorboard` is a writer that writes nothing.

`transformers.utils.send_example_telemetry`, which examples of transformers 4 import and version 5 lacks, sends nothing.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any


class _Writer(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch.utils.tensorboard":
            return None
        return importlib.util.spec_from_file_location(name, Path(__file__).with_name("tensorboard_writer.py"))


class _Utils(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        vars(module).setdefault("send_example_telemetry", lambda *_arguments, **_options: None)


class _Telemetry(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == "transformers.utils" else None
        if spec is not None and spec.origin:
            spec.loader = _Utils(name, spec.origin)
        return spec


sys.meta_path[:0] = [_Writer(), _Telemetry()]

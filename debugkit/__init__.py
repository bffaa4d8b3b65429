"""Detectors for training code that runs without an error and is wrong.

    report = debugkit.check(model, batch, optimizer=optimizer)     # before training; changes nothing
    with debugkit.watch(model, optimizer) as run: ...              # during training, any loop

Everything is imported when first used: `import debugkit` itself imports not even torch.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debugkit.checkup import check as check
    from debugkit.declare import Declare as Declare
    from debugkit.finding import Certainty as Certainty
    from debugkit.finding import Finding as Finding
    from debugkit.finding import Location as Location
    from debugkit.finding import Severity as Severity
    from debugkit.report import DebugkitError as DebugkitError
    from debugkit.report import Report as Report

_HOMES = {
    "check": "debugkit.checkup",
    "watch": "debugkit.watch",
    "Declare": "debugkit.declare",
    "Report": "debugkit.report",
    "DebugkitError": "debugkit.report",
    "Finding": "debugkit.finding",
    "Location": "debugkit.finding",
    "Severity": "debugkit.finding",
    "Certainty": "debugkit.finding",
} | {
    instrument: f"debugkit.instruments.{instrument}"
    for instrument in (
        "trace_shapes",
        "gradient_table",
        "find_graph_cut",
        "overfit_one_batch",
        "gradcheck",
        "first_nonfinite",
        "detect_overflow",
        "trace_batches",
        "simulate_device",
        "memory_profile",
        "find_batch_size",
        "seed_everything",
        "snapshot_on_failure",
        "watch_shapes",
        "explain_hang",
    )
}

__all__ = sorted(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'debugkit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(types.ModuleType):
    """Importing `debugkit.watch`, the file, must not hide `debugkit.watch`, the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

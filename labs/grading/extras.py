"""Checks that the packages of a lab are installed, before anything is started."""

from __future__ import annotations

import importlib.util

from labs.grading.catalog import Lab
from labs.grading.errors import MissingExtraError

_MODULES = {
    "labs": ("transformers", "gymnasium", "safetensors", "numpy"),
    "frameworks": ("accelerate", "lightning", "hydra"),
    "lightning": ("lightning",),
    "hydra": ("hydra",),
    "accelerate": ("accelerate",),
}
"""The import names of each extra; any other name is an import name itself."""


def missing_modules(lab: Lab) -> tuple[str, ...]:
    """Import names that the lab needs and that are not installed."""
    wanted = [module for extra in ("labs", *lab.extras) for module in _MODULES.get(extra, (extra,))]
    return tuple(name for name in dict.fromkeys(wanted) if importlib.util.find_spec(name) is None)


def require_extras(lab: Lab) -> None:
    """Raise MissingExtraError, with the command that installs them, if something is missing."""
    missing = missing_modules(lab)
    if missing:
        base = set(_MODULES["labs"])
        extra = "labs" if base & set(missing) else "labs,frameworks"
        raise MissingExtraError(
            f"Lab {lab.id} needs {', '.join(missing)}, which is not installed: pip install 'vla-debug-lab[{extra}]'"
        )

"""Configurations whose strings are intended as strings."""

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def versions_names_and_modes() -> dict[str, Any]:
    """Strings that look like numbers, and modes that look like booleans; 1e-3 through Hydra is a number."""
    return {"config": {"config_dir": HERE / "conf", "config_name": "healthy"}}


def numbers_read_by_hand() -> dict[str, Any]:
    """With a dot, PyYAML reads a number too; the same key in two mappings is two keys."""
    return {"config": {"files": [HERE / "typed.yaml"]}}


def plain_mapping() -> dict[str, Any]:
    """A config that the program has built itself."""
    return {"config": {"cfg": {"lr": 1e-4, "schedule": "cosine", "python_version": "3.11", "resume": None}}}


def nothing_given() -> dict[str, Any]:
    """No configuration at all."""
    return {"config": {}, "expect": {"not_examined": "No configuration was given"}}

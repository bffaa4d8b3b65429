"""A folder that all workers of one run of pytest share, for what is made once and read by many tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A path in it, whose parent exists."""
    root = factory.getbasetemp()
    folder = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    return folder / name

"""The repository's root, and the site as a reader would get it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from child_processes import run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site. The build is strict: one warning of mkdocs fails every test of the site.

    With `BUILT_SITE=folder`, the site that is there.
    """
    if there := os.environ.get("BUILT_SITE"):
        return Path(there).resolve()
    folder = tmp_path_factory.mktemp("site")
    built = run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, f"`mkdocs build --strict` refuses the site:\n{built.stdout}{built.stderr}"
    return folder

"""The repository's root, and the site as a reader would get it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from child_processes import run
from shared_folder import shared_folder

ROOT = Path(__file__).resolve().parents[2]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What looks at the built site is extended: the build takes a minute."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "site" in getattr(item, "fixturenames", ()):
            item.add_marker("extended")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site. The build is strict: one warning of mkdocs fails every test of the site.

    It is built once for all workers; with `BUILT_SITE=folder` there, if the folder does not exist yet.
    """
    folder = Path(os.environ.get("BUILT_SITE") or shared_folder(tmp_path_factory, "site")).resolve()
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            _build(folder)
    return folder


def _build(folder: Path) -> None:
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    built = run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", unfinished],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, f"`mkdocs build --strict` refuses the site:\n{built.stdout}{built.stderr}"
    unfinished.rename(folder)

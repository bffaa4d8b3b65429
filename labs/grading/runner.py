"""Runs pytest on one lab's checks.py, shut off from whatever configuration and plugins the person has."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labs.grading.catalog import Lab
from labs.grading.declarations import Declared, declared_in, forget
from labs.grading.errors import CheckError
from labs.grading.plugin import ChecksPlugin, check_of, refuse_marks

_INI = Path(__file__).with_name("checks.ini")
_OFF = (
    "terminal",
    "cacheprovider",
    "faulthandler",
    "doctest",
    "junitxml",
    "pastebin",
    "logging",
    "unittest",
    "nose",
    "stepwise",
)


def run_checks(lab: Lab, plugin: ChecksPlugin) -> None:
    """Collect and run every check. Raises KeyboardInterrupt if interrupted, CheckError for a broken checks.py."""
    _pytest(lab, plugin)
    if plugin.interrupted:
        raise KeyboardInterrupt


def declared_by(lab: Lab) -> Declared:
    """The checks and recognisers that a lab's checks.py declares, without running any. Raises CheckError."""
    collector = _Collector()
    _pytest(lab, collector, "--collect-only")
    return collector.declared


class _Collector:
    """Takes note of what was declared and runs nothing."""

    def __init__(self) -> None:
        self.declared = Declared((), ())

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            refuse_marks(item)
            self.declared = declared_in(check_of(item).module)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            raise CheckError(str(report.longrepr).strip().splitlines()[-1])


def _pytest(lab: Lab, plugin: object, *extra: str) -> None:
    path = lab.folder / "checks.py"
    if not path.is_file():
        raise CheckError(f"{path} is missing: every lab has its checks there.")
    _forget_module(path)
    arguments = [
        str(path),
        f"--config-file={_INI}",
        f"--rootdir={path.parent.parent}",
        "--import-mode=importlib",
        "--noconftest",
        "--assert=plain",  # no rewriting: its messages would show the check's source
        "--capture=no",
        "-Wignore",
        *(f"-pno:{name}" for name in _OFF),
        *extra,
    ]
    with _no_outside_influence():
        pytest.main(arguments, plugins=[plugin])


@contextlib.contextmanager
def _no_outside_influence() -> Iterator[None]:
    """Without PYTEST_ADDOPTS, PYTEST_PLUGINS and installed plugins, and with nothing new left on sys.path."""
    saved = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("PYTEST_")}
    path, bytecode = list(sys.path), sys.dont_write_bytecode
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("PYTEST_")]:
            del os.environ[name]
        os.environ.update(saved)
        sys.path[:], sys.dont_write_bytecode = path, bytecode


def _forget_module(path: Path) -> None:
    """Drop an earlier import of a checks.py, so that an author's edit is seen and no declaration doubled.

    pytest names the module after its folder, so another collection's lab of the same name would be taken for this one.
    """
    named_alike = (path.parent.name, f"{path.parent.name}.{path.stem}")
    for name, module in list(sys.modules.items()):
        file: Any = getattr(module, "__file__", None)
        if name in named_alike or (isinstance(file, str) and Path(file) == path):
            del sys.modules[name]
            forget(name)

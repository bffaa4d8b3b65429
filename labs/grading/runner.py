"""Runs pytest on one lab's checks.py, isolated from the user's pytest configuration and plugins."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.grading.catalog import Lab
from labs.grading.declarations import Declared, declared_in, forget
from labs.grading.errors import CheckError
from labs.grading.one_thread import one_thread
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
    "unraisableexception",  # it collects all garbage twice a grade, to find warnings that -Wignore drops
    "threadexception",
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
    if collector.fault is not None:
        raise CheckError(collector.fault)
    return collector.declared


class _Collector:
    """Records the declarations and runs nothing."""

    def __init__(self) -> None:
        self.declared = Declared((), ())
        self.fault: str | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            refuse_marks(item)
            self.declared = declared_in(check_of(item).module)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            raise CheckError(str(report.longrepr).strip().splitlines()[-1])

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        self.fault = f"checks.py could not be collected: {excinfo.type.__name__}: {excinfo.value}"
        return True


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
    with _no_outside_influence(), one_thread():
        pytest.main(arguments, plugins=[plugin, _ShortReports()])


class _ShortReports:
    """pytest's reports of failures quote a check's source and are never shown, so little is written into them."""

    def pytest_configure(self, config: pytest.Config) -> None:
        config.option.tbstyle = "value"


@contextlib.contextmanager
def _no_outside_influence() -> Iterator[None]:
    """Without PYTEST_ADDOPTS, PYTEST_PLUGINS and installed plugins; restores sys.path afterwards."""
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
    """Drop an earlier import of a checks.py, so that an author's edit takes effect and nothing is declared twice.

    pytest names the module after its folder, so a lab of the same name in another collection is dropped as well.
    """
    named_alike, own_file = (path.parent.name, f"{path.parent.name}.{path.stem}"), str(path)
    for name, module in list(sys.modules.items()):
        if name in named_alike or getattr(module, "__file__", None) == own_file:
            del sys.modules[name]
            forget(name)

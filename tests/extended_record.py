"""A pytest plugin: extended tests whose dependencies have not changed since they last passed need not run again.

A test file may declare what the results of its `extended` tests depend on, as files, folders and patterns below the
repository:

    EXTENDED_DEPENDS_ON = ("debugkit", "docs/rule_examples", "docs/*.py")

`pytest -m extended --changed` leaves out the tests of such a file while the contents of those files are the recorded
ones. `pytest -m extended --record` runs everything and then records each file all of whose extended tests passed; one
that was skipped or did not run is not recorded. The test file itself, the modules and `conftest.py` files that it can
use, the pinned packages, Python's and torch's versions always count. A file that declares nothing always runs.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

NAME = "EXTENDED_DEPENDS_ON"
RECORD = "tests/extended_passed.json"
ALWAYS = ("constraints.txt", "pyproject.toml", "tests/*.py")
VERIFICATION_RECORDS = ("solutions/*/verified.json", "solutions/*/seeds.json")
MARKER = "extended"


def declared(test_file: Path) -> tuple[str, ...] | None:
    """The patterns that a test file declares; None if it declares nothing. Raises ValueError if it is not a literal."""
    for statement in ast.parse(test_file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and [ast.unparse(target) for target in statement.targets] == [NAME]:
            return tuple(map(str, ast.literal_eval(statement.value)))
    return None


def digest(root: Path, test_file: Path, patterns: tuple[str, ...]) -> str:
    """The hash of all that the extended tests of a file depend on. Raises FileNotFoundError for an empty pattern."""
    tests = root / "tests"
    own = [test_file, *(folder / "conftest.py" for folder in test_file.parents if tests in (folder, *folder.parents))]
    files = {path for path in own if path.exists()}
    for pattern in (*ALWAYS, *patterns):
        found = set(_files(root, pattern))
        if not found and pattern not in ALWAYS:
            raise FileNotFoundError(
                f"{test_file.relative_to(root)}: {NAME} names {pattern}, and there is no such file."
            )
        files |= found
    files -= {path for pattern in VERIFICATION_RECORDS for path in root.glob(pattern)}
    hashed = hashlib.sha256(f"{sys.version_info[:2]} {_version('torch')}".encode())
    for path in sorted(files):
        content = path.read_bytes()
        hashed.update(f"\0{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return hashed.hexdigest()


def _files(root: Path, pattern: str) -> Iterator[Path]:
    for found in sorted(root.glob(pattern)):
        for path in [found] if found.is_file() else sorted(found.rglob("*")):
            parts = path.relative_to(root).parts
            if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
                yield path


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def read_record(root: Path) -> dict[str, dict[str, object]]:
    """What passed, by test file; nothing where there is no record."""
    try:
        return dict(json.loads((root / RECORD).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


class ExtendedRecord:
    """Leaves out what is unchanged, or records what passed."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._changed, self._recording = bool(config.getoption("changed")), bool(config.getoption("record"))
        self._is_worker = hasattr(config, "workerinput")
        self._collected: set[str] = set()
        self._passed: Counter[str] = Counter()  # phases
        self._not_passed: set[str] = set()
        self._unchanged = self._unchanged_files() if self._changed else {}

    def _unchanged_files(self) -> dict[Path, int]:
        """The files that need not run, and how many tests each has."""
        found = {}
        for name, entry in read_record(self._root).items():
            path = self._root / name
            patterns = declared(path) if path.exists() else None
            if patterns is not None and entry["digest"] == digest(self._root, path, patterns):
                found[path] = int(str(entry["tests"]))
        return found

    def pytest_report_header(self) -> list[str]:
        return [
            f"unchanged since its {count} extended tests passed: {path.relative_to(self._root).as_posix()}"
            for path, count in self._unchanged.items()
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if item.path in self._unchanged]
        if left_out:
            items[:] = [item for item in items if item.path not in self._unchanged]
            config.hook.pytest_deselected(items=left_out)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            self._passed[report.nodeid] += 1
        else:
            self._not_passed.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._is_worker:
            return
        if self._unchanged and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK
        if self._recording:
            self._write()

    def _write(self) -> None:
        record = read_record(self._root)
        for name, tests in sorted(self._by_file().items()):
            path = self._root / name
            patterns = declared(path)
            if patterns is None:
                continue
            record.pop(name, None)
            if all(self._passed[one] == 3 and one not in self._not_passed for one in tests):  # setup, call, teardown
                record[name] = {
                    "tests": len(tests),
                    "date": datetime.now(UTC).date().isoformat(),
                    "digest": digest(self._root, path, patterns),
                }
        kept = {name: record[name] for name in sorted(record) if (self._root / name).exists()}
        (self._root / RECORD).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")

    def _by_file(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for one in self._collected:
            found.setdefault(one.partition("::")[0], []).append(one)
        return found


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("extended tests")
    group.addoption("--changed", action="store_true", help="leave out extended tests that nothing has changed for")
    group.addoption("--record", action="store_true", help=f"write the extended tests that pass to {RECORD}")


def pytest_configure(config: pytest.Config) -> None:
    if not (config.getoption("changed") or config.getoption("record")):
        return
    part = config.option.keyword or any("::" in argument for argument in config.args)
    if config.option.markexpr != MARKER or part:
        raise pytest.UsageError(
            f"--changed and --record are for whole files: use them with -m {MARKER}, without -k and ::."
        )
    if config.getoption("changed") and config.getoption("record"):
        raise pytest.UsageError("--record runs everything: leave out --changed.")
    config.pluginmanager.register(ExtendedRecord(config))

"""The `[tool.debugkit]` table of pyproject.toml: what a project selects, ignores and accepts on the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debugkit.finding import Finding, Severity
from debugkit.rule import UnknownCodeError, all_rules, choose

if TYPE_CHECKING:
    from debugkit.report import Report

KEYS = ("select", "ignore", "fail-on", "baseline", "per-path-ignores")


class SettingsError(ValueError):
    """The table cannot be used; the message names the file, the key and what was expected."""


@dataclass(frozen=True)
class Settings:
    """What the table says. An option of the command line replaces the value of its key."""

    select: list[str] | None = None
    """Codes or prefixes to examine; None for all."""
    ignore: Mapping[str, str] | None = None
    """Codes or prefixes to leave out, each with its reason or an empty text."""
    fail_on: Severity = Severity.ERROR
    """The least severity that makes the exit code 1."""
    baseline: Path | None = None
    """A report whose findings are known; a relative path starts at the folder of pyproject.toml."""
    per_path_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Codes or prefixes whose findings are accepted in the files that a pattern matches."""
    folder: Path = Path()
    """The folder of pyproject.toml, from which patterns count."""

    def accept_by_path(self, report: Report) -> Report:
        """The report with the findings of `per_path_ignores` among the known ones."""
        accepted = [finding for finding in report.findings if self._accepts(finding)]
        if not accepted:
            return report
        left = tuple(
            replace(finding, caused_by=None) if finding.caused_by in {one.code for one in accepted} else finding
            for finding in report.findings
            if finding not in accepted
        )
        return replace(report, findings=left, known=(*report.known, *accepted))

    def _accepts(self, finding: Finding) -> bool:
        if finding.location.file is None:
            return False
        path = Path(finding.location.file)
        if path.is_absolute() and path.is_relative_to(self.folder):
            path = path.relative_to(self.folder)
        return any(
            fnmatchcase(path.as_posix(), pattern) and finding.code.startswith(codes)
            for pattern, codes in self.per_path_ignores.items()
        )


def read_settings(start: Path) -> Settings:
    """The settings of the nearest pyproject.toml with a `[tool.debugkit]` table, in `start` or above it.

    Without one, the defaults. Raises SettingsError for a file that does not parse, an unknown key, a value of the
    wrong type and a code that no rule has.
    """
    folder = start.absolute()
    for candidate in (folder, *folder.parents):
        path = candidate / "pyproject.toml"
        if path.is_file() and (table := _table(path)) is not None:
            return _settings(table, path)
    return Settings()


def _table(path: Path) -> dict[str, Any] | None:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.") from None
    tools = document.get("tool")
    table = tools.get("debugkit") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise SettingsError(f"{path}: [tool.debugkit] is a table with the keys {', '.join(KEYS)}.")
    return table


def _settings(table: dict[str, Any], path: Path) -> Settings:
    unknown = sorted(table.keys() - set(KEYS))
    if unknown:
        raise SettingsError(f"{path}: [tool.debugkit] has no key {unknown[0]}. It has {', '.join(KEYS)}.")
    by_path = table.get("per-path-ignores", {})
    if not isinstance(by_path, dict):
        raise SettingsError(f"{path}: per-path-ignores is a table, pattern to codes; it is {by_path!r}.")
    found = Settings(
        select=_codes(table["select"], "select", path) if "select" in table else None,
        ignore=_reasons(table["ignore"], path) if "ignore" in table else None,
        fail_on=_severity(table.get("fail-on", Severity.ERROR), path),
        baseline=path.parent / _text(table["baseline"], "baseline", path) if "baseline" in table else None,
        per_path_ignores={
            pattern: tuple(_codes(codes, f"per-path-ignores, {pattern}", path)) for pattern, codes in by_path.items()
        },
        folder=path.parent,
    )
    mentioned = [
        *(found.select or ()),
        *(found.ignore or ()),
        *(c for cs in found.per_path_ignores.values() for c in cs),
    ]
    try:
        choose(all_rules(), mentioned)
    except UnknownCodeError as error:
        raise SettingsError(f"{path}: {error}") from None
    return found


def _codes(value: Any, key: str, path: Path) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(code, str) for code in value):
        raise SettingsError(f"{path}: {key} is a list of codes or prefixes, such as ['DK1', 'DK305']; it is {value!r}.")
    return [code.upper() for code in value]


def _reasons(value: Any, path: Path) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(reason, str) for reason in value.values()):
        return {code.upper(): reason for code, reason in value.items()}
    if isinstance(value, dict):
        raise SettingsError(f"{path}: a reason in ignore is a text; ignore is {value!r}.")
    return dict.fromkeys(_codes(value, "ignore", path), "")


def _severity(value: Any, path: Path) -> Severity:
    try:
        return Severity(value)
    except ValueError:
        raise SettingsError(f"{path}: fail-on is {', '.join(Severity)}; it is {value!r}.") from None


def _text(value: Any, key: str, path: Path) -> str:
    if not isinstance(value, str):
        raise SettingsError(f"{path}: {key} is the path of a file; it is {value!r}.")
    return value

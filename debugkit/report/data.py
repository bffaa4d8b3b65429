"""The data of a report: what the renderers read. `Report` adds the methods."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from debugkit.finding import Finding, Severity, Unexamined
from debugkit.version import __version__


def installed_versions() -> dict[str, str]:
    """The versions of debugkit, torch and Python; torch is left out where it is not installed."""
    found = {"debugkit": __version__, "python": platform.python_version()}
    if "torch" in sys.modules:
        found["torch"] = str(sys.modules["torch"].__version__)
    else:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found["torch"] = metadata.version("torch")
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class ReportData:
    """What was found, what was examined, and what was not and why."""

    findings: tuple[Finding, ...] = ()
    """The worst first; each consequence comes right after its cause and has the cause's code in `caused_by`."""
    examined: tuple[str, ...] = ()
    """Codes of the rules that were judged."""
    not_examined: tuple[Unexamined, ...] = ()
    """The rules that were not judged, and why."""
    failure: str | None = None
    """What ended the observed step or the watched loop, in one sentence; None if it ran to its end."""
    title: str = ""
    """What was examined: the model's class, its size, how many steps."""
    known: tuple[Finding, ...] = ()
    """Findings that the baseline already has, or that the project's settings accept; no other count includes them."""
    versions: Mapping[str, str] = field(default_factory=installed_versions)
    """The versions of debugkit, python and torch when the report was made."""

    @property
    def ok(self) -> bool:
        """True if nothing failed and nothing was found at `error` or `warning`."""
        return self.failure is None and all(finding.severity is Severity.INFO for finding in self.findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings at `error`."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def by_code(self) -> dict[str, tuple[Finding, ...]]:
        """Findings by rule code, consequences included."""
        codes = dict.fromkeys(finding.code for finding in self.findings)
        return {code: tuple(finding for finding in self.findings if finding.code == code) for code in codes}

    @property
    def causes(self) -> tuple[Finding, ...]:
        """The findings that no other one explains."""
        return tuple(finding for finding in self.findings if finding.caused_by is None)

    @property
    def by_cause(self) -> list[tuple[Finding, list[Finding]]]:
        """Each root cause with the findings that it explains."""
        groups: list[tuple[Finding, list[Finding]]] = []
        for finding in self.findings:
            if finding.caused_by is None or not groups:
                groups.append((finding, []))
            else:
                groups[-1][1].append(finding)
        return groups


def fingerprint(finding: Finding | Mapping[str, Any]) -> tuple[str, str, str, str]:
    """What makes two findings the same one in two runs: code, module, parameter and file; not line or numbers."""
    if isinstance(finding, Finding):
        code, place = finding.code, finding.location
        module, parameter, file = place.module, place.parameter, place.file
    else:
        code, location = finding["code"], finding["location"]
        module, parameter, file = location["module"], location["parameter"], location["file"]
    return code, module or "", parameter or "", Path(file).name if file else ""

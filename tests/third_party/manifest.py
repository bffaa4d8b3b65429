"""What manifest.toml says: which scripts run, from where they are, with which arguments and data."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Source:
    """A file of a commit on GitHub, or a package's source archive on PyPI."""

    path: str
    """Where it is below the folder of the fetched scripts."""
    url: str
    sha256: str
    package: bool = False


@dataclass(frozen=True)
class Script:
    """One run of one script."""

    name: str
    repository: str
    version: str
    """The commit, or the version of the package."""
    licence: str
    file: str
    """Its path in the repository or in the archive."""
    path: str
    """Its path below the folder of the fetched scripts."""
    sources: tuple[Source, ...]
    arguments: tuple[str, ...] = ()
    data: str = ""
    """What stands in for the script's data, in words."""
    prepare: tuple[str, ...] = ()
    """Recipes of prepare.py that make the working folder."""
    environment: dict[str, str] = field(default_factory=dict)
    pythonpath: tuple[str, ...] = ()
    """Folders of the fetched files that the script imports from."""
    torchvision: bool = False
    """Whether it gets the stand-in for torchvision; other libraries use more of torchvision than that has."""
    seconds: int = 25
    """After so much processor time the run is interrupted, as with Ctrl-C, and its report is kept."""
    not_run: str = ""
    """Why the script is listed and does not run."""
    no_step: str = ""
    """A part of the failure with which it is known to end before its first step."""


def scripts() -> tuple[Script, ...]:
    """Every script, in the order of the manifest. Raises KeyError if a field is missing."""
    listed = tomllib.loads((HERE / "manifest.toml").read_text(encoding="utf-8"))
    return tuple(_script(entry, listed["packages"]) for entry in listed["scripts"])


def _script(entry: dict[str, Any], packages: dict[str, dict[str, str]]) -> Script:
    package = entry.get("package")
    if package:
        facts = packages[package]
        top = f"{package}-{facts['version']}"
        archive = f"{top}.tar.gz"
        url = f"https://pypi.org/pypi/{package}/{facts['version']}/json"
        sources = (Source(archive, url, facts["sha256"], package=True),)
        repository, version, licence = facts["repository"], facts["version"], facts["licence"]
        path = f"{top}/{entry['file']}"
    else:
        repository, version, licence = entry["repository"], entry["commit"], entry["licence"]
        folder = repository.replace("/", "__")
        path = f"{folder}/{entry['file']}"
        sources = tuple(
            Source(f"{folder}/{file}", f"https://raw.githubusercontent.com/{repository}/{commit}/{file}", sha256)
            for file, commit, sha256 in (
                (entry["file"], version, entry["sha256"]),
                *((more["file"], more["commit"], more["sha256"]) for more in entry.get("with", ())),
            )
        )
    return Script(
        name=entry["name"],
        repository=repository,
        version=version,
        licence=licence,
        file=entry["file"],
        path=path,
        sources=sources,
        arguments=tuple(entry.get("arguments", ())),
        data=entry.get("data", ""),
        prepare=tuple(entry.get("prepare", ())),
        environment=entry.get("environment", {}),
        pythonpath=tuple(entry.get("pythonpath", ())),
        torchvision=entry.get("torchvision", False),
        seconds=entry.get("seconds", 25),
        not_run=entry.get("not_run", ""),
        no_step=entry.get("no_step", ""),
    )

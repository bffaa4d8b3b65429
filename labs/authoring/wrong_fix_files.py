"""The files in a lab's `wrong_fixes/`: a whole replacement of one editable file, and two header lines.

It replaces the first editable file, or the one that a third header line names: `# replaces: conf/config.yaml`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from labs.grading.catalog import Lab

_REFUSED_BY = re.compile(r"^# refused_by:\s*(\S+)\s*$", re.MULTILINE)
_WHY = re.compile(r"^# why:\s*(\S.*)$", re.MULTILINE)
_REPLACES = re.compile(r"^# replaces:\s*(\S+)\s*$", re.MULTILINE)
_HEADER_LINES = 4
_SUFFIXES = (".py", ".yaml")


@dataclass(frozen=True)
class WrongFixFile:
    """One wrong fix: who must refuse it, and why, in a sentence."""

    path: Path
    refused_by: str | None
    why: str | None

    @property
    def name(self) -> str:
        """The file's name; without the suffix it is the recogniser's."""
        return self.path.name


def read_wrong_fixes(lab: Lab) -> list[WrongFixFile]:
    """The lab's wrong fixes, by name."""
    return [_read(path) for path in sorted((lab.folder / "wrong_fixes").glob("*")) if path.suffix in _SUFFIXES]


def alternatives(lab: Lab) -> list[Path]:
    """The files beside the solution that are as right as it is, by name."""
    return [path for path in sorted(lab.solution.glob("alternative_*")) if path.suffix in _SUFFIXES]


def as_submission(lab: Lab, replacement: Path, base: Path) -> dict[str, str | bytes]:
    """A submission's files: those in `base`, with `replacement` in the place of the file it is written for.

    Raises ValueError if that is not one of the editable files.
    """
    files: dict[str, str | bytes] = {name: (base / name).read_bytes() for name in lab.editable}
    named = _REPLACES.search(_header(replacement))
    target = named.group(1) if named else lab.editable[0]
    if target not in files:
        raise ValueError(f"{replacement} replaces {target}, which is none of {', '.join(lab.editable)}.")
    files[target] = replacement.read_bytes()
    return files


def _read(path: Path) -> WrongFixFile:
    header = _header(path)
    refused_by, why = _REFUSED_BY.search(header), _WHY.search(header)
    return WrongFixFile(path, refused_by.group(1) if refused_by else None, why.group(1).strip() if why else None)


def _header(path: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8").splitlines()[:_HEADER_LINES])

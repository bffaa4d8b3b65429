"""Where in a learner's files a refused grade points to, as `path:line`, which terminals and editors open."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from labs.grading.catalog import Lab
from labs.grading.grades import Grade
from labs.grading.submission_text import clean, shorten

_LONGEST = 120


@dataclass(frozen=True)
class Place:
    """A line of a learner's file, and what is wrong there."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{clean(str(self.path))}:{self.line}: {self.message}"


def place_of(grade: Grade, lab: Lab, folder: Path) -> Place | None:
    """The line in `folder` that a refusal names: of a syntax error, or where the code raised. None if there is none."""
    failed = next((one for one in grade.failed_checks if one.kind != "answer"), None)
    for text in (failed.message if failed is not None else "", grade.reason or ""):
        for name in lab.editable:
            found = _lines_of(name, text)
            if found:
                said = text.partition("\n")[0].partition(f" ({PurePosixPath(name).name}, line ")[0]
                return Place(folder.absolute() / name, found[-1], shorten(said, _LONGEST))
    return None


def _lines_of(name: str, text: str) -> list[int]:
    """The lines of a file that a message names: `policy.py, line 3` or `policy.py is not UTF-8 text (line 3)`."""
    named = re.escape(PurePosixPath(name).name)
    pattern = rf"(?<![\w./-])(?:[\w./-]*/)?{named}(?:, line | is not UTF-8 text \(line )(\d{{1,7}})\b"
    return [int(line) for line in re.findall(pattern, text)]

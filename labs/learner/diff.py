"""What changed between a lab's starter and another version of its files."""

from __future__ import annotations

import difflib
from pathlib import Path

from labs.grading.answers import ANSWERS, blank
from labs.grading.catalog import Lab
from labs.grading.submission_text import clean


def diff_from_starter(lab: Lab, folder: Path, label: str, *, starter: Path | None = None) -> list[str]:
    """A unified diff from the starter to the editable files in `folder`, without line ends; empty without a change.

    The lines are cleaned after the comparison, so that an invisible character shows as a difference. `starter` is the
    folder to compare with; by default the lab as it is shipped.
    """
    lines: list[str] = []
    for name in lab.editable:
        before, after = _lines((starter or lab.folder) / name), _lines(folder / name)
        lines += difflib.unified_diff(before, after, f"starter/{name}", f"{label}/{name}", lineterm="")
    return [clean(line) for line in lines]


def diff_of_answers(lab: Lab, folder: Path, label: str, *, starter: Path) -> list[str]:
    """A unified diff from the blank `answers.toml`, as it was copied into `starter`, to the one in `folder`.

    Empty without a change, without a file, and for a lab without questions.
    """
    before, after = _lines(starter / ANSWERS) or blank(lab).splitlines(), _lines(folder / ANSWERS)
    if not lab.questions or not after:
        return []
    lines = difflib.unified_diff(before, after, f"starter/{ANSWERS}", f"{label}/{ANSWERS}", lineterm="")
    return [clean(line) for line in lines]


def changed_lines(lab: Lab, folder: Path) -> int:
    """How many lines differ between the starter and another version; a changed line counts once."""
    total = 0
    for name in lab.editable:
        before, after = _lines(lab.folder / name), _lines(folder / name)
        blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        total += sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in blocks if kind != "equal")
    return total


def _lines(path: Path) -> list[str]:
    # A learner's file may be compared even if it is not valid UTF-8.
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []

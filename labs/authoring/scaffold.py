"""`lab dev new`: the files of a lab that runs; `lab dev verify` reports each TODO(author) that is not written yet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from string import Template

from labs.grading import catalog
from labs.grading.catalog import CHAPTERS
from labs.learner.atomic_file import write_atomically

SKELETON = Path(__file__).parent / "skeleton"


class ScaffoldError(Exception):
    """The lab cannot be created; the message says what to pass instead."""


@dataclass(frozen=True)
class NewLab:
    """What the author chooses before any file is written."""

    id: str
    slug: str
    chapter: str

    @property
    def name(self) -> str:
        """The folder's name."""
        return f"lab{self.id}_{self.slug}"


def scaffold(new: NewLab) -> list[Path]:
    """Write every file of a new lab and return their paths. Raises ScaffoldError, OSError; overwrites nothing."""
    _refuse(new)
    made = []
    for target in _files(new).values():
        if target.exists():
            raise ScaffoldError(f"{target} already exists; nothing was overwritten.")
    values = {"id": new.id, "slug": new.slug, "chapter": new.chapter, "name": new.name}
    for template, target in _files(new).items():
        target.parent.mkdir(parents=True, exist_ok=True)
        text = Template((SKELETON / template).read_text(encoding="utf-8")).substitute(values)
        write_atomically(target, text.encode())
        made.append(target)
    return made


def _files(new: NewLab) -> dict[str, Path]:
    lab, solution = catalog.LABS_ROOT / new.name, catalog.SOLUTIONS_ROOT / new.name
    lesson = catalog.LABS_ROOT.parent / "docs" / "lessons" / new.chapter / f"{new.id}_{new.slug}.md"
    return {
        "lab.toml.template": lab / "lab.toml",
        "policy.py.template": lab / "policy.py",
        "probe.py.template": lab / "probe.py",
        "checks.py.template": lab / "checks.py",
        "hints.md.template": lab / "hints.md",
        "wrong_fix_clamped.diff.template": lab / "wrong_fixes" / "clamped.diff",
        "wrong_fix_rescaled.diff.template": lab / "wrong_fixes" / "rescaled.diff",
        "wrong_fix_constant.diff.template": lab / "wrong_fixes" / "constant.diff",
        "solution.py.template": solution / "policy.py",
        "why.md.template": solution / "why.md",
        "lesson.md.template": lesson,
    }


def _refuse(new: NewLab) -> None:
    if not re.fullmatch(r"[0-9][1-9]", new.id):
        raise ScaffoldError(
            f"{new.id} is not a lab number: it needs two digits, the first the chapter's, the second 1 to 9."
        )
    if not re.fullmatch(r"[a-z][a-z0-9_]*", new.slug):
        raise ScaffoldError(f"{new.slug} is not a slug: use lower-case letters, digits and _; name the symptom.")
    if new.chapter not in CHAPTERS:
        raise ScaffoldError(f"There is no chapter {new.chapter}. There are: {', '.join(CHAPTERS)}.")
    if CHAPTERS[int(new.id[0])] != new.chapter:
        raise ScaffoldError(f"Lab {new.id} belongs to the chapter {CHAPTERS[int(new.id[0])]}, not {new.chapter}.")
    for taken in catalog.LABS_ROOT.glob(f"lab{new.id}_*"):
        raise ScaffoldError(f"Lab {new.id} already exists: {taken.name}. Choose another number.")

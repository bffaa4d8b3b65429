"""Where a lab's lesson is: on the site, in a clone on the disk, and in a course pack."""

from __future__ import annotations

from pathlib import Path

from labs.grading import catalog
from labs.grading.catalog import Lab
from labs.learner.pack import current_pack
from labs.locale import ENGLISH, current_language

SITE = "https://vla-debug-lab.github.io/vla-debug-lab"
LESSON = "lesson.md"
"""The lesson in a lab's own folder; a course pack has it there."""


def lesson_address(lab: Lab) -> str:
    """The lesson's page on the site, in the current language."""
    language = "" if current_language() == ENGLISH else f"{current_language()}/"
    return f"{SITE}/{language}{lab.lesson}/"


def lesson_file(lab: Lab) -> Path:
    """The lesson's source. It exists in a clone, in a pack with lessons, and not in an installed wheel."""
    own = lab.folder / LESSON
    return own if own.is_file() else catalog.LABS_ROOT.parent / "docs" / f"{lab.lesson}.md"


def file_to_read(lab: Lab) -> Path:
    """The lesson's source in the current language, if there is one; else in English."""
    english = lesson_file(lab)
    translated = english.with_suffix(f".{current_language()}.md")
    return translated if translated.is_file() else english


def lesson_place(lab: Lab) -> str | None:
    """Where a learner reads the lesson: the page, or for a lab of a pack its file; None if there is neither."""
    if current_pack() is None:
        return lesson_address(lab)
    return str(file_to_read(lab)) if lesson_file(lab).is_file() else None

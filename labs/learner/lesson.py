"""Where a lab's lesson is: on the site, and in a clone on the disk."""

from __future__ import annotations

from pathlib import Path

from labs.grading import catalog
from labs.grading.catalog import Lab

SITE = "https://vla-debug-lab.github.io/vla-debug-lab"


def lesson_address(lab: Lab) -> str:
    """The lesson's page on the site."""
    return f"{SITE}/{lab.lesson}/"


def lesson_file(lab: Lab) -> Path:
    """The lesson's source. It exists in a clone, not in an installed wheel."""
    return catalog.LABS_ROOT.parent / "docs" / f"{lab.lesson}.md"

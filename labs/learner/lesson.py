"""Where a lab's lesson is: on the site, and on the disk of someone who has a clone."""

from __future__ import annotations

from pathlib import Path

from labs.grading import catalog
from labs.grading.catalog import Lab

SITE = "https://vla-debug-lab.github.io/vla-debug-lab"


def lesson_address(lab: Lab) -> str:
    """The lesson's page on the site."""
    return f"{SITE}/{lab.lesson}/"


def lesson_file(lab: Lab) -> Path:
    """The lesson's source; there in a clone, absent where the wheel was installed."""
    return catalog.LABS_ROOT.parent / "docs" / f"{lab.lesson}.md"

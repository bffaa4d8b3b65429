"""What a learner receives beside the editable files, and which of a text's languages they read."""

from __future__ import annotations

from pathlib import Path

from labs.locale import ENGLISH, current_language

HANDOUT = "handout"
"""The folder of a lab with what its learners receive."""
BRIEF = "brief.md"
POST_MORTEM = "post_mortem.md"
"""In the handout the template, beside the solution the reference."""


def in_language(name: str, language: str) -> str:
    """The name of a text in a language: `brief.md` in English, `brief.ko.md` in Korean."""
    return name if language == ENGLISH else name.replace(".md", f".{language}.md")


def text_to_read(folder: Path, name: str) -> Path | None:
    """The file with a text in the current language, or in English if it has no other; None if there is none."""
    paths = (folder / in_language(name, language) for language in (current_language(), ENGLISH))
    return next((path for path in paths if path.is_file()), None)

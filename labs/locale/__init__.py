"""The language of what `lab` prints: English, or what a gettext catalogue beside this file says instead.

The English sentence is the key. A key with the flag `python-brace-format` is a template such as `Lab {id} is new.`: it
translates the template itself, and every English sentence that the template makes. `labs/locale/extract.py` writes the
keys. English costs nothing: no catalogue is read.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.locale.particles import with_particles

CATALOGUE = Path(__file__).with_name("ko.po")
ENGLISH = "en"
LANGUAGES = (ENGLISH, "ko")
TEMPLATE = "python-brace-format"
"""The gettext flag of a template."""

_PLACEHOLDER = re.compile(r"\{(\w*)(?:![rsa])?(?::[^{}]*)?\}|\{\{|\}\}")
_current = ENGLISH


class LanguageError(ValueError):
    """There is no such language; the message names those that exist."""


def current_language() -> str:
    """The language that was set last, English at first."""
    return _current


def set_language(language: str) -> None:
    """Use `language` from now on in this process. Raises LanguageError."""
    global _current
    if language not in LANGUAGES:
        raise LanguageError(f"There is no language {language!r}. The languages are: {', '.join(LANGUAGES)}.")
    _current = language


def language_of(environment: Mapping[str, str] = os.environ) -> str:
    """The language that the environment asks for: `LAB_LANG`, else the locale. Raises LanguageError for `LAB_LANG`."""
    wanted = environment.get("LAB_LANG", "")
    if wanted:
        if wanted not in LANGUAGES:
            raise LanguageError(f"LAB_LANG is {wanted!r}, but the languages are: {', '.join(LANGUAGES)}.")
        return wanted
    names = (environment.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    locale = next((name for name in names if name), "")
    return "ko" if re.match(r"ko(?![a-z])", locale) else ENGLISH


def translated(text: str, language: str | None = None, catalogue: Path = CATALOGUE) -> str:
    """`text` in `language`, the current one by default; `text` itself where the catalogue does not have it."""
    if (language or _current) == ENGLISH or not text:
        return text
    return _read(catalogue).translate(text) or text


def message(template: str, **values: object) -> str:
    """A translated template with its values, which must be in the right language already."""
    return with_particles(translated(template).format(**values)) if _current != ENGLISH else template.format(**values)


@dataclass(frozen=True)
class Catalogue:
    """The translations: those of whole texts, and the templates with the longest fixed text first."""

    texts: Mapping[str, str]
    templates: Sequence[tuple[re.Pattern[str], str]]

    def translate(self, text: str) -> str | None:
        """The translation; None if there is none."""
        beginning = f"{text[:1].lower()}{text[1:]}"  # a phrase may begin a sentence
        for one in dict.fromkeys((text, beginning)):
            if one in self.texts:
                return self.texts[one]
        for one in dict.fromkeys((text, beginning)):
            for pattern, template in self.templates:
                match = pattern.fullmatch(one)
                if match is not None:
                    values = {name: self.translate(value) or value for name, value in match.groupdict().items()}
                    return with_particles(template.format(**values))
        return None


@functools.cache
def _read(path: Path) -> Catalogue:
    import polib  # only for a language that is not English

    texts: dict[str, str] = {}
    templates: list[tuple[int, re.Pattern[str], str]] = []
    for entry in polib.pofile(str(path)):
        if entry.obsolete or entry.fuzzy or not entry.msgstr:
            continue
        texts[entry.msgid] = entry.msgstr
        if TEMPLATE in entry.flags:
            templates.append((len(_PLACEHOLDER.sub("", entry.msgid)), pattern_of(entry.msgid), entry.msgstr))
    templates.sort(key=lambda one: -one[0])
    return Catalogue(texts, [(pattern, template) for _, pattern, template in templates])


def placeholders_of(template: str) -> list[str]:
    """The names in braces, in their order."""
    return [found[1] for found in _PLACEHOLDER.finditer(template) if found[0] not in ("{{", "}}")]


def pattern_of(template: str) -> re.Pattern[str]:
    """A regular expression that matches what the template makes, with one group for each placeholder."""
    parts, at, seen = [], 0, set()
    for found in _PLACEHOLDER.finditer(template):
        parts.append(re.escape(template[at : found.start()]))
        at = found.end()
        if found[0] in ("{{", "}}"):
            parts.append(re.escape(found[0][0]))
        elif found[1] in seen:
            parts.append(f"(?P={found[1]})")
        else:
            parts.append(f"(?P<{found[1]}>.*?)")
            seen.add(found[1])
    return re.compile("".join(parts) + re.escape(template[at:]), re.DOTALL)

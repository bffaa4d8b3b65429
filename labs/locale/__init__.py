"""The language of what `lab` prints: English, or what a gettext catalogue beside this file says instead.

The English sentence is the key. A key with the flag `python-brace-format` is a template such as `Lab {id} is new.`: it
translates the template itself, and every English sentence that the template makes. `labs/locale/extract.py` writes the
keys. English costs nothing: no catalogue is read.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.locale.particles import with_particles

CATALOGUE = Path(__file__).with_name("ko.po")
ENGLISH = "en"
LANGUAGES = (ENGLISH, "ko")
FRAMES = "labs/locale/forms.py"
TEMPLATE = "python-brace-format"
"""The gettext flag of a template."""

_PLACEHOLDER = re.compile(r"\{(\w*)(?:![rsa])?(?::[^{}]*)?\}|\{\{|\}\}")
_FEW_LETTERS = 5
_FORMS_OF_PARTS = (" ()", ": ", "yes ()", "no ()")
_ONE_WORD, _NUMBER = re.compile(r"\S*"), re.compile(r"[\d,.]+")
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
class Template:
    """One template, and what its sentences look like."""

    english: str
    translation: str
    is_frame: bool = False
    """Whether it is a sentence around phrases, so that it is tried before the phrases."""

    @functools.cached_property
    def fixed(self) -> str:
        """The text outside of the placeholders."""
        return _fixed(self.english)

    @functools.cached_property
    def is_weak(self) -> bool:
        """Whether so little of it is fixed that it also matches sentences that it did not make."""
        return self.fixed not in _FORMS_OF_PARTS and sum(one.isalpha() for one in self.fixed) < _FEW_LETTERS

    @functools.cached_property
    def longest(self) -> str:
        """The longest piece of the fixed text; without it in a sentence nothing matches, and no pattern is compiled."""
        pieces = _PLACEHOLDER.split(self.english)[::2]
        return max((piece for piece in pieces if "{" not in self.english.replace(piece, "")), key=len, default="")

    def matches(self, text: str) -> Iterator[dict[str, str]]:
        """The values of the placeholders, none of them with half of a pair of parentheses.

        Two of them with a space between are tried at each space.
        """
        match = pattern_of(self.english).fullmatch(text)
        if match is not None and all(value.count("(") == value.count(")") for value in match.groupdict().values()):
            yield match.groupdict()
        if match is not None and self.fixed == " ":
            first, second = placeholders_of(self.english)
            for space in re.finditer(" ", text):
                yield {first: text[: space.start()], second: text[space.end() :]}


@dataclass(frozen=True)
class Catalogue:
    """The translations: those of whole texts, and the templates with the longest fixed text first."""

    texts: Mapping[str, str]
    templates: Sequence[Template]

    def translate(self, text: str, weak: bool = True) -> str | None:
        """The translation; None if there is none. Without `weak`, no weak template is tried."""
        if (text, weak) not in self._found:
            self._found[text, weak] = self._translate(text, weak)
        return self._found[text, weak]

    @functools.cached_property
    def _found(self) -> dict[tuple[str, bool], str | None]:
        return {}

    def _translate(self, text: str, weak: bool) -> str | None:
        # A phrase may begin a sentence.
        spellings = tuple(dict.fromkeys((text, f"{text[:1].lower()}{text[1:]}")))
        for one in spellings:
            if one in self.texts:
                return self.texts[one]
        for templates in (self.strong, self.weak if weak else ()):
            for template in templates:
                for one in spellings:
                    if template.longest in one:
                        for values in template.matches(one):
                            filled = self._filled(template, values)
                            if filled is not None:
                                return filled
        # What a check measures is "the loss" and "of 5 frames with padding"; a longer sentence may take the "of" away.
        is_a_phrase = " " in text and text[0].isalnum() and not text.startswith("of ")
        return self.translate(f"of {text}", weak=False) if is_a_phrase else None

    @functools.cached_property
    def strong(self) -> list[Template]:
        """The templates that match no sentence but their own."""
        return [template for template in self.templates if not template.is_weak]

    @functools.cached_property
    def weak(self) -> list[Template]:
        """The others."""
        return [template for template in self.templates if template.is_weak]

    def _filled(self, template: Template, values: Mapping[str, str]) -> str | None:
        """The translated template with its values; None if it is weak and a value is an unknown phrase."""
        translations = {name: self.translate(value, weak=not template.is_weak) for name, value in values.items()}
        if template.is_weak and not _is_plausible(template, values, translations):
            return None
        shown = {name: values[name] if found is None else found for name, found in translations.items()}
        return with_particles(template.translation.format(**shown))


def _is_plausible(template: Template, values: Mapping[str, str], translations: Mapping[str, str | None]) -> bool:
    """Whether a weak template made a sentence: what it has no translation of is a name or a number."""
    unknown = [values[name] for name, found in translations.items() if found is None]
    if template.fixed == " " and list(translations.values())[-1] is None:
        return False
    known = len(unknown) < len(values) or all(_NUMBER.fullmatch(value) for value in unknown)
    return known and all(_ONE_WORD.fullmatch(value) for value in unknown)


@functools.cache
def _read(path: Path) -> Catalogue:
    import polib  # type: ignore[import-untyped]  # only for a language that is not English

    texts: dict[str, str] = {}
    templates: list[Template] = []
    for entry in polib.pofile(str(path)):
        if entry.obsolete or entry.fuzzy or not entry.msgstr:
            continue
        # A clause that a check measures may end in a mark, which the message about it does not repeat.
        forms = [(entry.msgid, entry.msgstr)]
        if entry.msgid.endswith((",", ":")):
            forms.append((entry.msgid[:-1], entry.msgstr.rstrip(",:")))
        for text, translation in forms:
            texts[text] = translation
            if TEMPLATE in entry.flags:
                is_frame = any(place == FRAMES for place, _ in entry.occurrences)
                templates.append(Template(text, translation, is_frame and _fixed(text) not in _FORMS_OF_PARTS))
    templates.sort(key=lambda one: (not one.is_frame, -len(one.fixed)))
    return Catalogue(texts, templates)


def _fixed(template: str) -> str:
    return _PLACEHOLDER.sub("", template)


def placeholders_of(template: str) -> list[str]:
    """The names in braces, in their order."""
    return [found[1] for found in _PLACEHOLDER.finditer(template) if found[0] not in ("{{", "}}")]


@functools.cache
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

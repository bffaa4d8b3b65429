"""The site's texts that are not in a page, in the language of the page that is being built.

    python docs/_language.py    # add to docs/_ko.po the texts that it lacks, remove those that nothing says

`say("text")` is the text in that language. Its sources are calls of `say` in these modules, `"text" | say` in the
theme's templates, the navigation in mkdocs.yml, and the tables of chapters, symptoms and checklists. Texts of labs and
rules are in their Korean pages, and in the labs' own catalogue.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polib
import yaml
from _page_blocks import HEADING, blocks

DOCS = Path(__file__).resolve().parent
CATALOGUE = DOCS / "_ko.po"
LABS_CATALOGUE = DOCS.parent / "labs" / "locale" / "ko.po"
ENGLISH, KOREAN = "en", "ko"
DATA = {
    "_chapters.toml": ("title", "about"),
    "_symptoms.toml": ("title", "seen", "look"),
    "_checklists.toml": ("title", "about", "topic"),
}
"""The keys that readers see, of each table below `docs/`."""

_IN_TEMPLATE = re.compile(r"\"([^\"]+)\" \| say")
_language = ENGLISH


@contextmanager
def spoken(language: str) -> Iterator[None]:
    """Inside it, `say` speaks this language."""
    global _language
    before, _language = _language, language
    try:
        yield
    finally:
        _language = before


def say(text: str, /, **values: object) -> str:
    """The text in the page's language, with `{name}` replaced. A text without a translation stays English."""
    said = text if _language == ENGLISH else _catalogue(CATALOGUE).get(text) or _catalogue(LABS_CATALOGUE).get(text)
    return (said or text).format(**values) if values else said or text


def title_of(lesson: str, english: str) -> str:
    """A lab's title: the heading of its lesson's page, which is `lesson` below `docs/` without the suffix."""
    heading = _block(f"{lesson}.ko.md", 0)
    found = HEADING.match(heading) if heading else None
    return found["text"].partition(" · ")[2] if found else english


def summary_of(rule_page: str, english: str) -> str:
    """A rule's sentence: the first paragraph of its page."""
    return _block(rule_page.removesuffix(".md") + ".ko.md", 1) or english


def sources() -> list[str]:
    """Every text that `say` is asked for, once, in the order of the files."""
    found = list(_of_navigation(yaml.load((DOCS.parent / "mkdocs.yml").read_text("utf-8"), _Loader)["nav"]))
    for name, keys in DATA.items():
        found += _of_table(tomllib.loads((DOCS / name).read_text("utf-8")), keys)
    found += next(iter(json.loads((DOCS / "_compare.json").read_text("utf-8")).values()))["faults"]
    for module in sorted(DOCS.glob("_*.py")):
        found += _of_module(ast.parse(module.read_text("utf-8")))
    for template in sorted((DOCS / "_theme").rglob("*.html")):
        found += _IN_TEMPLATE.findall(template.read_text("utf-8"))
    return list(dict.fromkeys(found))


def update() -> tuple[int, int]:
    """Write the catalogue again, in the order of the sources. Returns how many texts were added and removed."""
    there = {entry.msgid: entry for entry in polib.pofile(str(CATALOGUE), wrapwidth=0)} if CATALOGUE.exists() else {}
    written = polib.POFile(wrapwidth=0)
    written.metadata = {"Language": KOREAN, "Content-Type": "text/plain; charset=UTF-8"}
    asked = sources()
    written.extend(there.get(text) or polib.POEntry(msgid=text) for text in asked)
    written.save(str(CATALOGUE))
    return len(set(asked) - there.keys()), len(there.keys() - set(asked))


class _Loader(yaml.SafeLoader):
    """mkdocs.yml names Python objects, which are not needed here."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def _of_navigation(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for title, below in entry.items() if isinstance(entry, dict) else ():
            yield title
            if isinstance(below, list):
                yield from _of_navigation(below)


def _of_table(table: Any, keys: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, dict):
                yield from _of_table(below, keys)
            elif key in keys:
                yield below


def _of_module(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "say" and isinstance(node.args[0], ast.Constant):
            yield node.args[0].value


def _block(page: str, number: int) -> str:
    path = DOCS / page
    found = blocks(path.read_text("utf-8")) if _language == KOREAN and path.exists() else []
    return found[number].text if len(found) > number else ""


def _catalogue(path: Path) -> dict[str, str]:
    return _read(path, path.stat().st_mtime_ns) if path.exists() else {}


@functools.lru_cache(maxsize=4)
def _read(path: Path, _: int) -> dict[str, str]:
    return {entry.msgid: entry.msgstr for entry in polib.pofile(str(path)) if entry.msgstr and not entry.fuzzy}


if __name__ == "__main__":
    added, removed = update()
    sys.stdout.write(f"{added} texts added, {removed} removed: docs/_ko.po\n")

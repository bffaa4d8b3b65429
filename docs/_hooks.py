"""What the site builds by itself: the navigation of lessons and rules, a lesson's facts, and tables of what exists.

mkdocs calls these functions (`hooks:` in mkdocs.yml). A page requests a list with a comment on a separate line:
`<!-- labs: shapes -->` or `all`, `<!-- rules: shapes -->`, `<!-- checklists: shapes -->`, `<!-- symptoms: silent -->`,
`<!-- instruments -->`, `<!-- chapters -->`, `<!-- compare -->`, `<!-- paths -->`, `<!-- path links -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import _compare
import _elements
import _facts
import _language
import _lessons
import _tables
from _language import KOREAN, say
from _translation import SUFFIX
from mkdocs import plugins
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

import debugkit
from debugkit.rule import all_rules
from labs.grading.catalog import Lab, all_labs
from labs.learner.paths import all_paths

INSTRUMENTS = Path(debugkit.__file__).parent / "instruments"
_REQUESTED = re.compile(r"^<!-- (labs|rules|symptoms|checklists): (\w+) -->$", re.MULTILINE)
_NOT_WRITTEN = re.compile(r"\[([^\]]+)\]\(((?:\.\./)*(?:lessons/\w+/\d\d_\w+|debugkit/rules/dk\d{3}_\w+)\.md)\)")
_TERMINAL = re.compile(r'<div class="[^"]*\bterminal\b.*?</div>', re.DOTALL)
_MARK = re.compile("[✓✗]")
_LESSON = re.compile(r"lessons/\w+/(\d\d)_\w+\.md")
_INDEX = "search/search_index.json"
_LAST_IN_THE_SEARCH = (
    "decisions.md",
    "changelog.md",
    "debugkit/injection.md",
    "debugkit/third_party.md",
    "debugkit/accuracy.md",
)
"""Long pages that mention much: what answers a question comes before them."""
_ONLY_AT_THE_ROOT = ("404.html", "objects.inv")
"""Files that every language's build writes there, of which the English ones stay."""
_navigation: list[Any] = []
_of_the_root: dict[str, bytes] = {}


def on_config(config: Any) -> Any:
    """Name the repository; add to the navigation lessons, rules, and pages that mkdocs.yml does not name.

    The site is built once for each language, from one configuration, which the first build has changed.
    """
    if not _navigation:
        _navigation.extend(config["nav"])
    if _built_language(config) == KOREAN:
        site = Path(config["site_dir"])
        _of_the_root.update({name: (site / name).read_bytes() for name in _ONLY_AT_THE_ROOT if (site / name).exists()})
    with _language.spoken(_built_language(config)):
        config["repo_url"] = _facts.urls()["Repository"]
        config["repo_name"] = say("Repository")
        config["nav"] = _said(_whole_navigation(Path(config["docs_dir"])))
    return config


def _built_language(config: Any) -> str:
    i18n = config["plugins"]["i18n"]
    return i18n.current_language or i18n.default_language


def _whole_navigation(docs: Path) -> list[Any]:
    navigation, named = deepcopy(_navigation), str(_navigation)
    for entry in navigation:
        if "Home" in entry:
            entry["Home"] += _unnamed(docs, docs, named)
        if "Lessons" in entry:
            entry["Lessons"] += _lesson_sections(docs)
        if "debugkit" in entry:
            entry["debugkit"] += _unnamed(docs / "debugkit", docs, named)
            entry["debugkit"] += [
                {say("Command lines"): [f"reference/{page.name}" for page in sorted((docs / "reference").glob("*.md"))]}
            ]
        if "Rules" in entry:
            entry["Rules"] += _rule_sections(docs)
    return navigation


def _said(entries: Sequence[Any]) -> list[Any]:
    """The entries of a navigation with their titles in the language of the build."""
    return [
        {say(title): _said(below) if isinstance(below, list) else below for title, below in entry.items()}
        if isinstance(entry, dict)
        else entry
        for entry in entries
    ]


def on_files(files: Any, config: Any) -> Any:
    """Publish the schema of a report beside debugkit's pages."""
    schema = Path(debugkit.__file__).parent / "report" / "schema.json"
    files.append(File.generated(config, "debugkit/report.schema.json", abs_src_path=str(schema)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put a lesson's facts under its title, facts and tables where a page requests them, and a description."""
    with _language.spoken(page.file.locale):
        return _finished_markdown(markdown, page)


def _finished_markdown(markdown: str, page: Any) -> str:
    path = page.file.norm_src_uri
    try:
        markdown = _facts.with_facts(markdown)
    except _facts.UnknownFactError as error:
        raise PluginError(f"{path}: {error}") from None
    if path in _LAST_IN_THE_SEARCH:
        page.meta["search"] = {"boost": 0.3}
    page.meta["description"] = _facts.with_facts(page.meta.get("description") or _description(markdown, path))
    if lesson := _LESSON.fullmatch(path):
        markdown = _with_card(markdown, lesson.group(1), path)
    markdown = markdown.replace("<!-- instruments -->", _instruments())
    markdown = markdown.replace("<!-- chapters -->", _tables.chapter_list())
    markdown = markdown.replace("<!-- compare -->", _compare.table())
    to_docs = "../" * path.count("/")
    markdown = markdown.replace("<!-- paths -->", _tables.path_blocks(all_paths(), all_labs(), to_docs))
    markdown = markdown.replace("<!-- path links -->", _tables.path_links(all_paths(), f"{to_docs}lessons/paths.md"))
    markdown = _REQUESTED.sub(lambda found: _table(found.group(1), found.group(2), path), markdown)
    folder = Path(page.file.abs_src_path).parent
    return _NOT_WRITTEN.sub(
        lambda link: link.group(0) if (folder / link.group(2)).exists() else _promised(link.group(1)), markdown
    )


def _description(markdown: str, path: str) -> str:
    """A lesson's is its symptom, another page's its first paragraph."""
    lesson = _LESSON.fullmatch(path)
    symptoms = {lab.id: lab.symptom for lab in all_labs()}
    found = say(symptoms.get(lesson.group(1), "")) if lesson else _facts.first_paragraph(markdown)
    if not found:
        raise PluginError(f"{path} has no paragraph to describe it: give it a `description:` in its front matter.")
    return _facts.shortened(_facts.plain(found))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Fold what tells a lesson's answer; let tables and pictures scroll; colour a terminal's marks."""
    with _language.spoken(page.file.locale):
        if _LESSON.fullmatch(page.file.norm_src_uri):
            _lessons.without_parts(page.toc)
            html = _lessons.folded(html)
        html = _elements.finished(html)
    html = _TERMINAL.sub(lambda found: _MARK.sub(_coloured, found.group(0)), html)
    return html if page.file.locale == page.file.locale_alternate_of else _in_english(html)


def _in_english(html: str) -> str:
    """An English page among the Korean ones: a screen reader is told, and so is the reader."""
    with _language.spoken(KOREAN):
        note = say("This page is only available in English.")
    return f'<p class="only-english" data-search-exclude>{note}</p>\n<div lang="en">\n{html}\n</div>'


def on_env(env: Any, config: Any, **_: Any) -> Any:
    """`"text" | say` in the theme's templates."""

    def said(text: str) -> str:
        with _language.spoken(_built_language(config)):
            return say(text)

    env.filters["say"] = said
    return env


@plugins.event_priority(-200)  # after the plugin, which has built every language by then and written one index
def on_post_build(config: Any) -> None:
    """Give each language its own search index, with addresses below the language's home page."""
    site, below = Path(config["site_dir"]), f"{KOREAN}/"
    for name, content in _of_the_root.items():
        (site / name).write_bytes(content)
    index = json.loads((site / _INDEX).read_text(encoding="utf-8"))
    english = [entry for entry in index["docs"] if not entry["location"].startswith(below)]
    korean = [entry for entry in index["docs"] if entry["location"].startswith(below)]
    for entry in korean:
        entry["location"] = entry["location"].removeprefix(below)
    _write_index(site, {**index, "docs": english})
    _write_index(site / KOREAN, {**index, "docs": korean})


def _write_index(folder: Path, index: dict[str, Any]) -> None:
    (folder / _INDEX).parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(index, separators=(",", ":"), ensure_ascii=False)
    (folder / _INDEX).write_text(text, encoding="utf-8")


def _coloured(mark: re.Match[str]) -> str:
    return f'<span class="{"passed" if mark.group(0) == "✓" else "failed"}">{mark.group(0)}</span>'


def _instruments() -> str:
    """The API blocks of the instruments and, one level below each, of its results, as `debugkit.__all__` names them."""
    blocks = []
    for name in debugkit.__all__:
        if (INSTRUMENTS / f"{name}.py").exists():
            module = f"debugkit.instruments.{name}"
            blocks.append(f"::: {module}.{name}")
            results = [other for other in debugkit.__all__ if debugkit._HOMES[other] == module and other != name]
            blocks += [f"::: {module}.{result}\n    options:\n      heading_level: 4" for result in results]
    return "\n\n".join(blocks)


def _promised(text: str) -> str:
    """A lesson or a rule may name one that is not written yet: it becomes a link when its page exists."""
    return say("{text} (not written yet)", text=text)


def _unnamed(folder: Path, docs: Path, named: str) -> list[str]:
    """Pages of a folder that mkdocs.yml does not name: they come last in its section."""
    pages = [page.relative_to(docs).as_posix() for page in sorted(folder.glob("[!_]*.md"))]
    return [page for page in pages if f"'{page}'" not in named and not page.endswith(SUFFIX)]


def _lesson_sections(docs: Path) -> list[dict[str, list[str]]]:
    sections = []
    for chapter in _tables.chapters():
        folder = docs / "lessons" / chapter.name
        lessons = [page for page in sorted(folder.glob("[0-9][0-9]_*.md")) if not page.name.endswith(SUFFIX)]
        sections.append(
            {chapter.title: [page.relative_to(docs).as_posix() for page in [folder / "index.md", *lessons]]}
        )
    return sections


def _rule_sections(docs: Path) -> list[dict[str, list[dict[str, str]]]]:
    sections = []
    for chapter in _tables.chapters():
        rules = [rule for rule in all_rules() if rule.family == chapter.name]
        pages = [
            {f"{rule.code} {rule.name}": _tables.rule_page(rule)}
            for rule in rules
            if (docs / _tables.rule_page(rule)).exists()
        ]
        if pages:
            sections.append({chapter.title: pages})
    return sections


def _with_card(markdown: str, number: str, path: str) -> str:
    labs = {lab.id: lab for lab in all_labs()}
    if number not in labs:
        raise PluginError(f"{path} is the lesson of lab {number}, which does not exist.")
    lab: Lab = labs[number]
    if path != f"{lab.lesson}.md":
        raise PluginError(f"{path} should be {lab.lesson}.md: that is what lab.toml's chapter, id and slug say.")
    return _lessons.with_card(markdown, lab, all_labs(), list(all_paths().values()))


def _table(kind: str, what: str, path: str) -> str:
    to_docs = "../" * path.count("/")
    if kind == "symptoms":
        return _tables.symptom_index(all_labs(), all_rules(), loud=what == "loud", to_docs=to_docs)
    known = {chapter.name for chapter in _tables.chapters()} | {"all"}
    if what not in known:
        raise PluginError(
            f"{path} requests {kind} of {what!r}, which is not a chapter. Chapters: {', '.join(sorted(known))}."
        )
    if kind == "labs":
        return _tables.labs_list([lab for lab in all_labs() if what in ("all", lab.chapter)], to_docs)
    if kind == "checklists":
        one = None if what == "all" else what
        return _tables.checklist_blocks(
            all_labs(), all_rules(), to_docs, chapter=one, heading="##" if one is None else "###"
        )
    return _tables.rules_list([rule for rule in all_rules() if what in ("all", rule.family)], to_docs)

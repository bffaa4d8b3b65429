"""The site's lists, as Markdown made from what exists: labs from their `lab.toml`, rules from the registry.

Pure functions from data to text. `docs/_hooks.py` puts them into pages while the site is built, `docs/_generate.py`
into the committed pages.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import _language
from _language import say
from markdown.extensions.toc import slugify_unicode

from debugkit.rule import Rule
from labs.grading.catalog import Lab
from labs.learner.paths import LearningPath

DOCS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Chapter:
    """One chapter of the taxonomy: its folder name, title, tens digit, and what it is about."""

    name: str
    title: str
    digit: int
    about: str


@dataclass(frozen=True)
class Sign:
    """A symptom, what to look at first, and the labs and rules for it."""

    title: str
    loud: bool
    seen: str
    look: str
    labs: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """One line of a checklist: what to know or do, and the labs, rules and instruments for it."""

    topic: str
    labs: tuple[str, ...]
    rules: tuple[str, ...]
    tools: tuple[str, ...]


@dataclass(frozen=True)
class Checklist:
    """A title, a sentence, and items."""

    title: str
    about: str
    items: tuple[Item, ...]


def chapters() -> tuple[Chapter, ...]:
    """The ten chapters in the order of the taxonomy."""
    return tuple(Chapter(name, **facts) for name, facts in tomllib.loads(read("_chapters.toml")).items())


def signs() -> tuple[Sign, ...]:
    """Every sign of the symptom index, in the order of the page."""
    return tuple(
        Sign(**{**entry, "labs": tuple(entry["labs"]), "rules": tuple(entry["rules"])})
        for entry in tomllib.loads(read("_symptoms.toml"))["sign"]
    )


def chapter_list() -> str:
    """The chapters with their digits, for a page directly below `docs/`."""
    return "\n".join(
        f"- [{say(chapter.title)}](lessons/{chapter.name}/index.md): {say(chapter.about)} "
        f'<span class="meta">{say("labs {digit}x, rules DK{digit}xx", digit=chapter.digit)}</span>'
        for chapter in chapters()
    )


def labs_list(labs: Sequence[Lab], to_docs: str) -> str:
    """Labs with their symptom. `to_docs` is the path from the page's folder to `docs/`, e.g. `../../`."""
    if not labs:
        return say("The labs of this chapter are not written yet.")
    return _entries(
        (
            f"{lesson_link(lab, to_docs, numbered=True)}",
            f"{stars(lab)} {_loudness(lab)} · {_minutes(lab)}",
            say(lab.symptom),
        )
        for lab in labs
    )


def path_blocks(paths: Mapping[str, LearningPath], labs: Sequence[Lab], to_docs: str) -> str:
    """Each path: whom it is for, its command, and its labs as an ordered list with stars and minutes."""
    return "\n\n".join(_path_block(name, path, path.of(labs), to_docs) for name, path in paths.items())


def path_links(paths: Mapping[str, LearningPath], to_page: str) -> str:
    """The titles of the paths as links to their places on the page."""
    return " · ".join(f"[{say(path.title)}]({to_page}#{name})" for name, path in paths.items())


def _path_block(name: str, path: LearningPath, labs: Sequence[Lab], to_docs: str) -> str:
    hours = f"{sum(lab.minutes for lab in labs) / 60:.0f}"
    steps = "\n".join(
        f'1. {lesson_link(lab, to_docs, numbered=True)} <span class="meta">{stars(lab)} · {_minutes(lab)}</span>'
        for lab in labs
    )
    counted = say("{labs} labs, {hours} hours", labs=len(labs), hours=hours)
    return (
        f'## {say(path.title)} {{ #{name} }}\n\n{say(path.about)} <span class="meta">{counted}</span>\n\n'
        f"```sh\nlab next --path {name}\n```\n\n"
        f'<div class="path" markdown>\n\n{steps}\n\n</div>'
    )


def rules_list(rules: Sequence[Rule], to_docs: str) -> str:
    """Rules with their one-line fault, severity, certainty and cost."""
    if not rules:
        return say("The rules of this chapter are not written yet.")
    return _entries(
        (
            f"{rule_link(rule, to_docs)} {rule.name}",
            f"{rule.severity} · {_certainty(rule)} · {rule.cost}",
            _language.summary_of(rule_page(rule), rule.summary),
        )
        for rule in rules
    )


def symptom_index(labs: Iterable[Lab], rules: Iterable[Rule], *, loud: bool, to_docs: str = "") -> str:
    """The loud or the silent symptoms: what you see, where to look, and the labs and rules for it."""
    by_id = {lab.id: lab for lab in labs}
    by_code = {rule.code: rule for rule in rules}
    blocks = []
    for sign in signs():
        here = [by_id[number] for number in sign.labs if number in by_id]
        there = [by_code[code] for code in sign.rules if code in by_code]
        if sign.loud is loud:
            blocks.append(_sign_block(sign, here, there, to_docs))
    return "\n\n".join(blocks)


def checklists() -> tuple[Checklist, ...]:
    """The five checklists, in the order of the page."""
    return tuple(
        Checklist(
            entry["title"],
            entry["about"],
            tuple(
                Item(item["topic"], *(tuple(item.get(key, ())) for key in ("labs", "rules", "tools")))
                for item in entry["items"]
            ),
        )
        for entry in tomllib.loads(read("_checklists.toml"))["checklist"]
    )


def checklist_blocks(
    labs: Iterable[Lab], rules: Iterable[Rule], to_docs: str, *, chapter: str | None = None, heading: str = "##"
) -> str:
    """Every checklist with its items, or those items that labs of one chapter teach."""
    by_id, by_code = {lab.id: lab for lab in labs}, {rule.code: rule for rule in rules}
    blocks = []
    for checklist in checklists():
        items = [
            _item(item, by_id, by_code, to_docs)
            for item in checklist.items
            if chapter is None or any(by_id[number].chapter == chapter for number in item.labs if number in by_id)
        ]
        if items:
            lead = f"{say(checklist.about)}\n\n" if chapter is None else ""
            blocks.append(f"{_heading(heading, checklist.title)}\n\n{lead}" + "\n".join(items))
    return "\n\n".join(blocks)


def stars(lab: Lab) -> str:
    """Difficulty as one to three stars."""
    drawn = "★" * lab.difficulty + "☆" * (3 - lab.difficulty)
    title = say("difficulty {difficulty} of 3", difficulty=lab.difficulty)
    return f'<span class="stars" title="{title}">{drawn}</span>'


def _entries(entries: Iterable[tuple[str, str, str]]) -> str:
    """(name, facts, sentence) as a list: on a phone, a table would be too narrow to read."""
    items = [f'- **{name}** <span class="meta">{facts}</span>\n\n    {sentence}' for name, facts, sentence in entries]
    return '<div class="entries" markdown>\n\n' + "\n\n".join(items) + "\n\n</div>"


def _loudness(lab: Lab) -> str:
    return say("loud") if lab.loudness == "loud" else say("silent")


def _minutes(lab: Lab) -> str:
    return say("{minutes}\u00a0min", minutes=lab.minutes)


def _certainty(rule: Rule) -> str:
    names = {"proof": say("proof"), "statistical": say("statistical"), "heuristic": say("heuristic")}
    return names[rule.certainty]


def _heading(level: str, title: str) -> str:
    """A heading with the anchor of the English one, so that a link holds in each language."""
    return f"{level} {say(title)} {{ #{slugify_unicode(title, '-')} }}"


def _sign_block(sign: Sign, labs: Sequence[Lab], rules: Sequence[Rule], to_docs: str) -> str:
    lines = [_heading("###", sign.title), "", say(sign.seen), "", f"**{say('Look first.')}** {say(sign.look)}", ""]
    if labs:
        lines.append(f"- {say('Labs:')} " + " · ".join(lesson_link(lab, to_docs, numbered=True) for lab in labs))
    if rules:
        lines.append(f"- {say('Rules:')} " + " · ".join(f"{rule_link(rule, to_docs)} {rule.name}" for rule in rules))
    return "\n".join(lines)


def _item(item: Item, labs: dict[str, Lab], rules: dict[str, Rule], to_docs: str) -> str:
    there = [lesson_link(labs[number], to_docs, numbered=True) for number in item.labs if number in labs]
    there += [rule_link(rules[code], to_docs) for code in item.rules if code in rules]
    there += [f"[`{tool}`]({to_docs}debugkit/api.md#debugkit.instruments.{tool}.{tool})" for tool in item.tools]
    return f"- {say(item.topic)}\n\n    " + (" · ".join(there) or say("not written yet")) + "\n"


def lesson_link(lab: Lab, to_docs: str = "", *, numbered: bool = False) -> str:
    """A lab's title, with or without its number, as a link to its lesson."""
    title = _language.title_of(lab.lesson, lab.title)
    text = f"{lab.id} {title}" if numbered else title
    return f"[{text}]({to_docs}{lab.lesson}.md)" if (DOCS / f"{lab.lesson}.md").exists() else text


def rule_link(rule: Rule, to_docs: str = "") -> str:
    """A rule's code, as a link to its page."""
    return f"[{rule.code}]({to_docs}{rule_page(rule)})"


def rule_page(rule: Rule) -> str:
    """A rule's page below `docs/`; `Rule.url` is the same address on the site."""
    return f"debugkit/rules/{rule.module.rpartition('.')[2]}.md"


def read(name: str) -> str:
    """The text of a file below `docs/`."""
    return (DOCS / name).read_text(encoding="utf-8")

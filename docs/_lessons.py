"""What the site adds to a lesson: the card under its title, and folds around the sections that tell the answer.

Nothing of it is written in the lesson's file. Folded text is left out of the search: a query must not show an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import _tables

from labs.grading.catalog import Lab

FOLDED = {
    "the-detector": ("detector", "Which rule finds it (this names the fault)"),
    "where-it-happened": ("case", "The documented case (this names the fault)"),
    "exercises": ("exercises", "After your fix (this names the fault)"),
}
"""The anchors of the sections that are folded, the fold's class, and its title."""
COMMANDS = {
    "start": "copies its files to your workspace",
    "run": "shows the failure",
    "hint": "one more of three hints at each call",
    "grade": "checks your fix",
    "solution": "after a pass: the shipped fix, and why",
}
_SECTION = re.compile(r'(<h2 id="(?P<anchor>[\w-]+)">.*?</h2>)(?P<body>.*?)(?=<h2 |\Z)', re.DOTALL)
_DETAILS = re.compile(r"<details\b[^>]*>.*?</details>", re.DOTALL)


def with_card(markdown: str, lab: Lab, labs: Sequence[Lab]) -> str:
    """The lesson with its card between the title and the failure."""
    title, _, rest = markdown.lstrip().partition("\n")
    return f"{title}\n\n{card(lab, labs)}\n\n{rest.lstrip()}"


def card(lab: Lab, labs: Sequence[Lab]) -> str:
    """A lab's facts and commands, as HTML; the links are Markdown, which mkdocs resolves."""
    by_id = {other.id: other for other in labs}
    before = [by_id[number] for number in lab.prerequisites if number in by_id]
    following = next((other for other in labs if other.id > lab.id), None)
    extras = ",".join(["labs", *lab.extras])
    install = "[Install the labs](../../start.md)"
    if lab.extras:
        install += f" with the extra `{extras}`"
    raises = "it raises" if lab.loudness == "loud" else "nothing raises"
    facts = {
        "Difficulty": f"{_tables.stars(lab)} {lab.difficulty} of 3, {raises}",
        "Time": f"{lab.minutes} minutes",
        "Install first": install,
        "Do before": ", ".join(_tables.lesson_link(other, "../../", numbered=True) for other in before) or "nothing",
        "Edit": ", ".join(f"`{name}`" for name in lab.editable),
        **({"Answer": f"{_questions(lab)} in `answers.toml`"} if lab.questions else {}),
        "Next lab": _tables.lesson_link(following, "../../", numbered=True) if following else "this is the last",
    }
    rows = [f"<div markdown>\n<dt>{name}</dt>\n<dd markdown>{value}</dd>\n</div>" for name, value in facts.items()]
    typed = [f"<li><code>lab {name} {lab.id}</code> {what}</li>" for name, what in COMMANDS.items()]
    return "\n".join(
        ['<div class="card" markdown>', "<dl markdown>", *rows, "</dl>", "<ol>", *typed, "</ol>", "</div>"]
    )


def _questions(lab: Lab) -> str:
    return "one question" if len(lab.questions) == 1 else f"{len(lab.questions)} questions"


def folded(html: str) -> str:
    """The page with the sections of FOLDED in closed folds, and nothing that is folded in the search."""
    return _DETAILS.sub(lambda fold: _not_searched(fold.group(0)), _SECTION.sub(_fold, html))


def without_parts(toc: Any) -> None:
    """Leave the headings inside folded sections out of the table of contents: they tell the answer as well."""
    for entry in toc:
        without_parts(entry.children)
        if entry.id in FOLDED:
            entry.children = []


def _fold(section: re.Match[str]) -> str:
    if section["anchor"] not in FOLDED:
        return section.group(0)
    kind, title = FOLDED[section["anchor"]]
    body = section["body"].strip()
    return f'{section[1]}\n<details class="{kind}">\n<summary>{title}</summary>\n{body}\n</details>\n'


def _not_searched(fold: str) -> str:
    return re.sub(r"<(details|h[2-6])(?=[ >])", r"<\1 data-search-exclude", fold)

"""What the site adds to a lesson: the card under its title, and folds around the sections that tell the answer.

Nothing of it is written in the lesson's file. Folded text is left out of the search: a query must not show an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import _tables
from _language import say
from _next_in_path import next_in_path

from labs.grading.catalog import Lab
from labs.learner.paths import LearningPath

FOLDED = {"the-detector": "detector", "where-it-happened": "case", "exercises": "exercises"}
"""The anchors of the sections that are folded, and the fold's class."""
COMMANDS = ("start", "run", "hint", "grade", "solution")
"""The commands of the card."""
_SECTION = re.compile(r'(<h2 id="(?P<anchor>[\w-]+)">.*?</h2>)(?P<body>.*?)(?=<h2 |\Z)', re.DOTALL)
_DETAILS = re.compile(r"<details\b[^>]*>.*?</details>", re.DOTALL)


def with_card(markdown: str, lab: Lab, labs: Sequence[Lab], paths: Sequence[LearningPath]) -> str:
    """The lesson with its card between the title and the failure."""
    title, _, rest = markdown.lstrip().partition("\n")
    return f"{title}\n\n{card(lab, labs, paths)}\n\n{rest.lstrip()}"


def card(lab: Lab, labs: Sequence[Lab], paths: Sequence[LearningPath]) -> str:
    """A lab's facts and commands, as HTML; the links are Markdown, which mkdocs resolves."""
    by_id = {other.id: other for other in labs}
    before = [by_id[number] for number in lab.prerequisites if number in by_id]
    after = [other for other in labs if lab.id in other.prerequisites]
    following = next_in_path(lab, labs, paths)
    extras = ",".join(["labs", *lab.extras])
    install = say("[Install the labs](../../start.md)")
    if lab.extras:
        install = say("[Install the labs](../../start.md) with the extra `{extras}`", extras=extras)
    loud = lab.loudness == "loud"
    raises = say("{level} of 3, it raises") if loud else say("{level} of 3, nothing raises")
    facts = {
        say("Difficulty"): f"{_tables.stars(lab)} {raises.format(level=lab.difficulty)}",
        say("Time"): say("{minutes} minutes", minutes=lab.minutes),
        say("Install first"): install,
        say("Builds on"): _one_a_line(before) or say("nothing"),
        **({say("Leads to"): _one_a_line(after)} if after else {}),
        say("Edit"): ", ".join(f"`{name}`" for name in lab.editable),
        **({say("Answer"): _questions(lab)} if lab.questions else {}),
        say("Next lab"): _numbered(following) if following else say("this is the last of its path"),
    }
    rows = [f"<div markdown>\n<dt>{name}</dt>\n<dd markdown>{value}</dd>\n</div>" for name, value in facts.items()]
    typed = [f"<li><code>lab {name} {lab.id}</code> {what}</li>" for name, what in _commands().items()]
    return "\n".join(
        ['<div class="card" markdown>', "<dl markdown>", *rows, "</dl>", "<ol>", *typed, "</ol>", "</div>"]
    )


def _questions(lab: Lab) -> str:
    if len(lab.questions) == 1:
        return say("one question in `answers.toml`")
    return say("{number} questions in `answers.toml`", number=len(lab.questions))


def _one_a_line(labs: Sequence[Lab]) -> str:
    return "<br>".join(_numbered(lab) for lab in labs)


def _numbered(lab: Lab) -> str:
    return _tables.lesson_link(lab, "../../", numbered=True)


def _commands() -> dict[str, str]:
    said = (
        say("copies its files to your workspace"),
        say("shows the failure"),
        say("one more of three hints at each call"),
        say("checks your fix"),
        say("after a pass: the shipped fix, and why"),
    )
    return dict(zip(COMMANDS, said, strict=True))


def fold_title(anchor: str) -> str:
    """The line that a reader clicks to open a section of FOLDED."""
    return {
        "the-detector": say("Which rule finds it (this names the fault)"),
        "where-it-happened": say("The documented case (this names the fault)"),
        "exercises": say("After your fix (this names the fault)"),
    }[anchor]


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
    kind, title = FOLDED[section["anchor"]], fold_title(section["anchor"])
    body = section["body"].strip()
    return f'{section[1]}\n<details class="{kind}">\n<summary>{title}</summary>\n{body}\n</details>\n'


def _not_searched(fold: str) -> str:
    return re.sub(r"<(details|h[2-6])(?=[ >])", r"<\1 data-search-exclude", fold)

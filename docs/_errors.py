"""The page of error messages, made from `_errors.toml`.

A heading per message, so that the site's search leads to it. What varies in a message is an example, and an ellipsis in
its heading.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass

import _tables

from debugkit.rule import Rule
from labs.grading.catalog import Lab

GROUPS = (
    "shapes",
    "devices and dtypes",
    "autograd",
    "numerics",
    "memory",
    "data loading",
    "checkpoints",
    "optimizer, schedule and trainer",
    "distributed",
    "configuration",
)
GUIDES = {
    "nan": "The loss is NaN",
    "not_learning": "The loss does not fall",
    "out_of_memory": "Out of memory",
    "hangs": "A distributed run hangs",
    "not_repeatable": "Two runs differ",
    "good_loss_bad_robot": "The loss is good, the robot is not",
}
_PYTHON = re.compile(r"(print\(|with |next\(|debugkit\.|torch\.|lightning\.)")
_FRONT_MATTER = """---
# A pasted message is searched with this tag: docs/assets/search.js.
tags: [error-message]
search:
  boost: 2
---
"""
_INTRO = """# Error messages

What a message means, and what to measure first; paste a part of your message into the search to find it here. The calls
are to be made in your script, where `model`, `batch`, `loss_fn`, `optimizer` or `dataset` is what you train with. Most
are functions of [debugkit](debugkit/index.md):

```sh
pip install 'debugkit-torch @ git+{{repository}}#subdirectory=debugkit'
```
"""


@dataclass(frozen=True)
class Message:
    """One error message; `_errors.toml` describes the fields."""

    anchor: str
    group: str
    message: str
    library: str
    means: str
    measure: str
    verified: str
    rules: tuple[str, ...]
    labs: tuple[str, ...]
    also: tuple[str, ...]
    guide: str | None = None
    heading: str = ""

    @property
    def title(self) -> str:
        """The constant part of the message."""
        return self.heading or self.message

    @property
    def constant_parts(self) -> tuple[str, ...]:
        """The title without what varies."""
        return tuple(part.strip() for part in self.title.split("…"))


def messages() -> tuple[Message, ...]:
    """Every message, in the order of the file."""
    read = tomllib.loads((_tables.DOCS / "_errors.toml").read_text(encoding="utf-8"))
    lists = ("rules", "labs", "also")
    return tuple(
        Message(anchor, **{**entry, **{name: tuple(entry[name]) for name in lists}}) for anchor, entry in read.items()
    )


def page(labs: Iterable[Lab], rules: Iterable[Rule]) -> str:
    """The text of docs/errors.md."""
    by_id, by_code = {lab.id: lab for lab in labs}, {rule.code: rule for rule in rules}
    blocks = [_FRONT_MATTER + _INTRO]
    for group in GROUPS:
        blocks.append(f"## {group.capitalize()}\n")
        blocks += [_entry(message, by_id, by_code) for message in messages() if message.group == group]
    return "\n".join(blocks)


def language(measure: str) -> str:
    """`python` for a call, `sh` for a command."""
    return "python" if _PYTHON.match(measure) else "sh"


def _entry(message: Message, labs: dict[str, Lab], rules: dict[str, Rule]) -> str:
    lines = [f"### {_code(message.title)} {{ #{message.anchor} }}", ""]
    if message.title != message.message:
        lines += ["```text", message.message, "```", ""]
    lines += [f'{message.means} <span class="meta">{message.library}</span>', "", "**Measure first**", ""]
    lines += [f"```{language(message.measure)}", message.measure, "```", ""]
    if message.also:
        lines += [f"Also seen as: {' · '.join(_code(other) for other in message.also)}", ""]
    links = [_guide(message.guide)] if message.guide else []
    links += [f"Lab {_tables.lesson_link(labs[number], numbered=True)}" for number in message.labs]
    links += [f"{_tables.rule_link(rules[code])} {rules[code].name}" for code in message.rules]
    if links:
        lines += [f"- {link}" for link in links] + [""]
    return "\n".join(lines)


def _guide(name: str) -> str:
    return f"Guide: [{GUIDES[name]}](guides/{name}.md)"


def _code(text: str) -> str:
    """Markdown that shows `text` as code; text with backticks is delimited by two."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"

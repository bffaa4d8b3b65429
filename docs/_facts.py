"""What pages state and do not hold: the repository's address, the numbers, and each page's description.

A page asks for a fact with its name in double braces, in code blocks too: `{{repository}}`, `{{labs}}`.
"""

from __future__ import annotations

import functools
import re
import tomllib

import _tables

from debugkit.rule import all_rules
from labs.grading.catalog import all_labs

ROOT = _tables.DOCS.parent
LONGEST = 200
"""A description's length, in characters; result pages show fewer."""
_ASKED = re.compile(r"\{\{(\w+)\}\}")
_MEASURED = re.compile(
    r"\*\*(?P<alarms>\d+) of (?P<programs>\d+)\*\* correct .*? \*\*(?P<found>\d+) of (?P<faults>\d+)\*\* planted faults"
)
_NOT_PROSE = re.compile(r"^(#|```|~~~|\||<|!!!|\?\?\?|:::|---|- |\d+\. |> |\s)")


class UnknownFactError(ValueError):
    """A page asks for a fact that does not exist; the message lists those that do."""


@functools.cache
def facts() -> dict[str, str]:
    """Every fact by its name. The repository's address is the one in pyproject.toml."""
    measured = _MEASURED.search(_tables.read("debugkit/accuracy.md"))
    assert measured is not None, "docs/debugkit/accuracy.md does not begin with its two numbers"
    repository = urls()["Repository"]
    return {
        "repository": repository,
        "folder": repository.rpartition("/")[2],
        "labs": str(len(all_labs())),
        "silent": str(sum(lab.loudness == "silent" for lab in all_labs())),
        "rules": str(len(all_rules())),
        **measured.groupdict(),
    }


@functools.cache
def urls() -> dict[str, str]:
    """The addresses in pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]


def with_facts(markdown: str) -> str:
    """The text with each fact that it asks for. Raises UnknownFactError."""

    def fact(asked: re.Match[str]) -> str:
        if asked[1] not in facts():
            raise UnknownFactError(f"There is no fact {asked[0]}. Facts: {', '.join(facts())}.")
        return facts()[asked[1]]

    return _ASKED.sub(fact, markdown)


def first_paragraph(markdown: str) -> str:
    """The first paragraph of prose, as plain text of at most LONGEST characters."""
    fence = False
    for block in re.split(r"\n\s*\n", markdown):
        fences = len(re.findall(r"^ *```", block, re.MULTILINE))
        if not fence and not fences and not _NOT_PROSE.match(block):
            return shortened(plain(block))
        fence ^= fences % 2 == 1
    return ""


def plain(markdown: str) -> str:
    """The text without links, emphasis, code marks and tags, on one line."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    text = re.sub(r"<[^>]+>|[`*]", "", text)
    return " ".join(text.split())


def shortened(text: str) -> str:
    """The sentences of `text` that fit, or as many words of the first."""
    if len(text) <= LONGEST:
        return text
    sentences = re.match(rf"(.{{30,{LONGEST - 1}}}[.?!])(?=\s)", text)
    return sentences[1] if sentences else text[: LONGEST - 1].rpartition(" ")[0] + "…"

"""The blocks of a Markdown page, and what a translation of a block must keep."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from markdown.extensions.toc import slugify_unicode, unique

FRONT = re.compile(r"\A---\n(?P<front>.*?)\n---\n", re.DOTALL)
FENCE = re.compile(r"^ *(?P<mark>`{3,}|~{3,})")
HEADING = re.compile(r"^(?P<level>#{1,6}) (?P<text>.*?)(?: *\{ *#(?P<anchor>[\w-]+)[^}]*\})?$")
_CODE_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\((?P<to>[^)\s]+)[^)]*\)")
_TAG = re.compile(r"</?[a-z][a-z0-9]*\b|<!--.*?-->|\{\{\w+\}\}|<https?://[^>]+>", re.DOTALL)
_WHOLE_TAG = re.compile(r"<!--.*?-->|</?[a-z][^>]*>|\{\{\w+\}\}", re.DOTALL)
_ATTRIBUTE = re.compile(r"\b(?:href|src|id|class)=\"[^\"]*\"")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)+|\d{2,}")  # one digit may be a word in the other language
_WORD = re.compile(r"(?<![\w-])[a-z]{2,}(?![\w-])")
_HANGUL = re.compile("[가-힣]")
_SENTENCE = 4
"""So many English words without Hangul are a sentence that was left untranslated."""
_CELL = re.compile(r"(?<!\\)\|")
_STARTS = (
    ("heading", re.compile(r"^#{1,6} ")),
    ("fold", re.compile(r"^ *(?:!!!|\?\?\?\+?|===) ?(?P<mark>[\w-]*)")),
    ("table", re.compile(r"^ *\|")),
    ("list", re.compile(r"^ *(?:[-*+]|\d+\.) ")),
)


@dataclass(frozen=True)
class Block:
    """A block of a page: its text without the last line break, and the line it begins on."""

    text: str
    line: int

    @property
    def translatable(self) -> bool:
        """Whether it holds words, and not only code, numbers, a snippet or a comment."""
        plain = _WHOLE_TAG.sub("", _CODE_SPAN.sub("", self.text))
        return (
            not self.fenced and not plain.lstrip().startswith("--8<--") and re.search("[A-Za-z]{2}", plain) is not None
        )

    @property
    def fenced(self) -> bool:
        """Whether it is a code fence."""
        return FENCE.match(self.text) is not None

    @property
    def heading(self) -> re.Match[str] | None:
        """The level, the text and the anchor of a heading; None of any other block."""
        return None if self.fenced else HEADING.match(self.text)

    @property
    def hash(self) -> str:
        """Eight hexadecimal digits of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    @property
    def kind(self) -> str:
        """What it is, with what a translation keeps: a heading's level, a list's number of items, a table's size."""
        first = self.text.splitlines()[0]
        for name, start in _STARTS:
            if found := start.match(first):
                return f"{name} {self._measure(name, found)}"
        return f"paragraph {len(first) - len(first.lstrip())}"

    def _measure(self, name: str, found: re.Match[str]) -> str:
        lines = self.text.splitlines()
        if name == "heading":
            return str(self.text.index(" "))
        if name == "fold":
            return f"{found.group(0)}"
        if name == "table":
            return "of " + ", ".join(
                str(len(_CELL.findall(line))) for line in _CODE_SPAN.sub("", self.text).splitlines()
            )
        items = filter(None, (found.re.match(line) for line in lines))
        return "of " + " ".join(re.sub(r"\d+", "1", item[0]).replace(" ", "·") for item in items)

    def problems(self, other: Block) -> Iterator[str]:
        """What a translation `other` of this block changes that it may not."""
        if self.fenced or other.fenced:
            if self.text != other.text:
                yield "the code is not the English page's"
            return
        if self.kind != other.kind:
            yield f"a {other.kind} where the English page has a {self.kind}"
        for what, found in (("links", _links), ("code", _code), ("tags", _tags)):
            missing, added = found(self.text) - found(other.text), found(other.text) - found(self.text)
            if missing or added:
                yield f"{what}: missing {sorted(missing.elements())}, added {sorted(added.elements())}"
        if missing := _numbers(self.text) - _numbers(other.text):
            yield f"numbers: missing {sorted(missing.elements())}"
        if min(map(_indent, other.text.splitlines())) < min(map(_indent, self.text.splitlines())):
            yield "a line is indented less than the English block"
        words = _WORD.findall(_prose(other.text))
        if len(words) >= _SENTENCE and len(_HANGUL.findall(other.text)) < len(words):
            yield f"is not translated: {' '.join(words[:8])}"


def _links(text: str) -> Counter[str]:
    return Counter(found["to"] for found in _LINK.finditer(text))


def _code(text: str) -> Counter[str]:
    return Counter(" ".join(found[1].split()) for found in _CODE_SPAN.findall(text))


def _tags(text: str) -> Counter[str]:
    plain = _CODE_SPAN.sub("", text)
    return Counter([*_TAG.findall(plain), *_ATTRIBUTE.findall(plain)])


def _numbers(text: str) -> Counter[str]:
    return Counter(_NUMBER.findall(_LINK.sub("", _CODE_SPAN.sub("", text))))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _prose(text: str) -> str:
    """What a reader reads: no code, no tags, no targets of links."""
    heading = HEADING.match(text)
    return _WHOLE_TAG.sub("", _LINK.sub("]", _CODE_SPAN.sub("", heading["text"] if heading else text)))


def body(text: str) -> str:
    """A page without its front matter."""
    return FRONT.sub("", text, count=1)


def blocks(text: str) -> list[Block]:
    """The blocks of a page. A fence is one block with its blank lines; a line of `!!!`, `???` or `===` is one too."""
    offset = text[: len(text) - len(body(text))].count("\n")
    found: list[Block] = []
    gathered: list[str] = []
    began, mark = 0, ""

    def end() -> None:
        if gathered:
            found.append(Block("\n".join(gathered), offset + began))
            gathered.clear()

    for number, line in enumerate(body(text).splitlines(), start=1):
        fence = FENCE.match(line)
        if mark:
            gathered.append(line)
            if fence and line.strip() == mark:
                mark = ""
                end()
            continue
        alone = line.startswith("#") or re.match(r" *(!!!|\?\?\?\+?|===) ", line)
        if not line.strip() or fence or alone:
            end()
        if not line.strip():
            continue
        if not gathered:
            began = number
        gathered.append(line.rstrip())
        if fence:
            mark = fence["mark"]
        elif alone:
            end()
    end()
    return found


def anchors(text: str) -> list[str]:
    """The anchors that the site gives to a page's headings, in order."""
    used: set[str] = set()
    made = []
    for block in blocks(text):
        if heading := block.heading:
            made.append(heading["anchor"] or unique(slugify_unicode(_plain(heading["text"]), "-"), used))
            used.add(made[-1])
    return made


def _plain(heading: str) -> str:
    return re.sub(r"<[^>]+>|[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip()

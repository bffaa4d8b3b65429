"""Hold the Korean pages together with the English ones.

    python docs/_translation.py status            # pages without a translation, and translations with a problem
    python docs/_translation.py check PAGE...     # what differs from PAGE.md in PAGE.ko.md; exit 1 if anything does
    python docs/_translation.py todo PAGE...      # the blocks without a translation, each below `@@ HASH`
    python docs/_translation.py fill FILE PAGE... # write PAGE.ko.md, with the translations in FILE below `@@ HASH`

PAGE is the English page. Its translation PAGE.ko.md has the same blocks in the same order: a block is a
heading, a paragraph, a list, a table, or a fence. Fences, links, code spans and HTML tags are the English page's.
The front matter's `source` holds the hash of each English block, so that a changed paragraph is found; `todo` then
shows only what changed, and `fill` keeps everything else. A block that occurs on several pages is translated once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
import yaml
from _page_blocks import FRONT, HEADING, Block, anchors, blocks

DOCS = Path(__file__).resolve().parent
SUFFIX = ".ko.md"
NOT_TRANSLATED = (
    "reference/*",
    "debugkit/api.md",
    "debugkit/accuracy.md",
    "debugkit/injection.md",
    "debugkit/third_party.md",
    "decisions.md",
    "contributing.md",
    "changelog.md",
)
"""Pages for maintainers and pages made from docstrings: the Korean site shows them in English."""
USAGE = "Usage: python docs/_translation.py status | check PAGE... | todo PAGE... | fill FILE PAGE..."

_SOURCE = re.compile(r"^source:.*\n?(?:^ +.*\n?)*", re.MULTILINE)
_FRONT_LINE = re.compile(r"^(?:title|description): .+$", re.MULTILINE)


def pages() -> list[Path]:
    """The English pages that are to be translated."""
    found = []
    for page in sorted(DOCS.rglob("*.md")):
        path = page.relative_to(DOCS)
        hidden = any(part.startswith("_") for part in path.parts) or path.parts[0] in ("snippets", "rule_examples")
        if not hidden and not page.name.endswith(SUFFIX) and not any(path.match(one) for one in NOT_TRANSLATED):
            found.append(page)
    return found


def translation_of(page: Path) -> Path:
    """Where the translation of a page is."""
    return page.with_name(page.stem + SUFFIX)


def source_of(translated: Path) -> Path:
    """The English page of a translation."""
    return translated.with_name(translated.name.removesuffix(SUFFIX) + ".md")


def problems(translated: Path) -> list[str]:
    """What is wrong with a translation, each with its line. Empty if it holds."""
    source = source_of(translated)
    for page in (source, translated):
        if not page.exists():
            return [f"there is no {page.name}"]
    before, after = source.read_text("utf-8"), translated.read_text("utf-8")
    found = [*_stale(before, after, source.name), *_front_problems(before, after)]
    english, other = blocks(before), blocks(after)
    for one, two in zip(english, other, strict=False):
        found += [f"line {two.line}: {problem} (line {one.line} of {source.name})" for problem in one.problems(two)]
        if one.fenced != two.fenced:
            break  # everything after it is off by one
    if len(english) != len(other):
        found.append(f"{len(other)} blocks where {source.name} has {len(english)}")
    if not found and anchors(before) != anchors(after):
        found.append("the headings' anchors are not those of the English page: run `fill`")
    return found


def _stale(before: str, after: str, name: str) -> Iterator[str]:
    stamped = _stamped(after)
    now = _everything(before)
    if stamped == [block.hash for block in now]:
        return
    changed = [block for block in now if block.hash not in stamped]
    for block in changed:
        yield f"line {block.line} of {name} is new or changed: {block.text.strip()[:60]}"
    if not changed:
        yield f"blocks of {name} were removed or moved"


def _front_problems(before: str, after: str) -> Iterator[str]:
    for one, two in zip(_front_lines(before), _front_lines(after), strict=False):
        yield from (f"line {two.line}: {problem}" for problem in one.problems(two))
    try:
        english, other = _front_matter(before), _front_matter(after)
    except yaml.YAMLError as error:
        yield f"the front matter is not YAML: {' '.join(str(error).split())}"
        return
    same = english.keys() - {"title", "description"}
    if english.keys() != other.keys() - {"source"} or any(english[key] != other[key] for key in same):
        yield "the front matter is not the English page's: run `fill`"


def _front_matter(text: str) -> dict[str, object]:
    front = FRONT.match(text)
    return yaml.safe_load(front["front"]) if front else {}


def _misaligned(translated: Path) -> bool:
    """Whether a page's stamps are not one for each block, so that `fill` would drop its text."""
    text = translated.read_text("utf-8") if translated.exists() else ""
    return bool(text) and len(_stamped(text)) != len(_everything(text))


def memory() -> dict[str, str]:
    """The translation of every block that a stamped page holds, by the English block's hash."""
    known = {}
    for translated in sorted(DOCS.rglob(f"*{SUFFIX}")):
        text = translated.read_text("utf-8")
        stamped = _stamped(text)
        other = _everything(text)
        if len(stamped) == len(other):
            known |= {one: _without_anchor(two.text) for one, two in zip(stamped, other, strict=True) if not two.fenced}
    return known


def todo(sources: Sequence[Path]) -> Iterator[Block]:
    """The blocks that need a translation, each once."""
    known = set(memory())
    for source in sources:
        text = source.read_text("utf-8")
        for block in _everything(text):
            if block.translatable and block.hash not in known:
                known.add(block.hash)
                yield block


def fill(source: Path, known: dict[str, str]) -> None:
    """Write a page's translation. A block without a translation stays English, and is not stamped."""
    text = source.read_text("utf-8")
    lines = text.splitlines()
    stamped = []
    wanted = anchors(text)
    everything = _everything(text)
    for block in reversed(everything):
        translated = known.get(block.hash, block.text)
        if block.heading:
            translated = _with_anchor(translated, wanted.pop())
        lines[block.line - 1 : block.line - 1 + block.text.count("\n") + 1] = translated.splitlines()
    for block in everything:
        stamped.append(block.hash if block.hash in known or not block.translatable else "????????")
    written = "\n".join(lines) + "\n"
    rows = [" ".join(stamped[start : start + 12]) for start in range(0, len(stamped), 12)]
    entry = "source: >-\n" + "".join(f"  {row}\n" for row in rows)
    front = FRONT.match(written)
    kept = front["front"] + "\n" if front else ""
    translation_of(source).write_text(f"---\n{kept}{entry}---\n{FRONT.sub('', written, count=1)}", encoding="utf-8")


def _everything(text: str) -> list[Block]:
    return [*_front_lines(text), *blocks(text)]


def _front_lines(text: str) -> list[Block]:
    front = FRONT.match(text)
    if not front:
        return []
    found = _FRONT_LINE.finditer(front["front"])
    return [Block(line.group(0), 2 + front["front"][: line.start()].count("\n")) for line in found]


def _without_anchor(text: str) -> str:
    heading = HEADING.match(text)
    return f"{heading['level']} {heading['text']}" if heading else text


def _with_anchor(text: str, anchor: str) -> str:
    return f"{_without_anchor(text)} {{ #{anchor} }}" if HEADING.match(text) else text


def _stamped(text: str) -> list[str]:
    front = FRONT.match(text)
    entry = _SOURCE.search(front["front"] + "\n") if front else None
    return re.findall(r"[0-9a-f]{8}|\?{8}", entry.group(0)) if entry else []


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^@@ ([0-9a-f]{8})[^\n]*\n", text, flags=re.MULTILINE)
    return {key: value.strip("\n") for key, value in zip(parts[1::2], parts[2::2], strict=True) if value.strip()}


def _filled(named: Sequence[Path], sections: dict[str, str]) -> bool:
    """Write the pages' translations, unless something would be lost. Says what it refuses, and what is not used."""
    refused = list(_refused(sections))
    refused += [
        f"{translation_of(source).name}: its blocks are not those that `source` in its front matter counts. "
        "Undo the change that added or removed a block, then fill again."
        for source in named
        if _misaligned(translation_of(source))
    ]
    for line in refused:
        typer.echo(line, err=True)
    if refused:
        return False
    asked = {block.hash for source in named for block in _everything(source.read_text("utf-8"))}
    if unused := sorted(sections.keys() - asked):
        typer.echo(f"not a block of these pages, and not used: {' '.join(unused)}", err=True)
    known = memory() | sections
    for source in named:
        fill(source, known)
    return True


def _refused(sections: dict[str, str]) -> Iterator[str]:
    """What is wrong with the translations in a file, before they are on a page."""
    for key, text in sections.items():
        front = re.match(r"(title|description): ", text)
        if not front and len(blocks(text)) != 1:
            yield f"@@ {key}: a translation is one block, without a blank line; this is {len(blocks(text))}"


def _english(page: str) -> Path:
    path = Path(page).resolve()
    return source_of(path) if path.name.endswith(SUFFIX) else path


def main(arguments: Sequence[str]) -> int:
    """The command line. Returns the exit code."""
    verb, *rest = arguments or [""]
    file = Path(rest.pop(0)) if verb == "fill" and len(rest) > 1 else None
    named = [_english(argument) for argument in rest]
    wrong = verb not in ("status", "check", "todo", "fill") or (verb == "status") != (not rest)
    if wrong or (verb == "fill" and file is None):
        typer.echo(USAGE, err=True)
        return 2
    missing = [page for page in named if verb != "check" and not page.exists()]
    if file is not None and not file.exists():
        missing.append(file)
    if missing:
        here = f"Paths are relative to {Path.cwd()}, such as docs/index.md."
        typer.echo(f"There is no file {' or '.join(map(str, missing))}. {here}", err=True)
        return 2
    if verb == "todo":
        for block in todo(named):
            typer.echo(f"@@ {block.hash}\n{block.text}\n")
        return 0
    if file is not None and not _filled(named, _sections(file.read_text("utf-8"))):
        return 1
    if verb == "status":
        for page in pages():
            if not translation_of(page).exists():
                typer.echo(f"no translation: {page.relative_to(DOCS)}")
        named = [source_of(translated) for translated in sorted(DOCS.rglob(f"*{SUFFIX}"))]
    failed = False
    for source in named:
        for problem in problems(translation_of(source)):
            failed = True
            typer.echo(f"{translation_of(source).relative_to(DOCS)}: {problem}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Edits: the small text form in which wrong fixes and alternative solutions are stored.

    refused_by: test_loss_equals_the_reference
    why: Compares every frame with every other one.
    --- starter/policy.py
    @@
    -    error = command - target
    +    error = command - target[:, None]

First the header, `key: value`. A `---` line names the file that is edited: one of the lab's editable files, taken from
the starter or from the solution. Each `@@` begins a block: the lines marked `-` and the unmarked lines (which begin
with a space) must occur together in that file exactly once, and the block replaces them with its unmarked and its `+`
lines. There are no line numbers, so a change elsewhere in the file does not affect the edit. Empty lines at the end of
a block are ignored.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

SUFFIX = ".diff"
KEYS = ("refused_by", "named", "near_miss", "why")
Base = Literal["starter", "solution"]

_HEADER = re.compile(r"(\w+):\s*(.*?)\s*")
_FILE = re.compile(rf"--- ({'|'.join(get_args(Base))})/(\S+)\s*")


class EditError(ValueError):
    """An edit cannot be read or applied; the message names the file, the line and what to change."""


@dataclass(frozen=True)
class Block:
    """One replacement: the lines `old`, which occur once in the base, become `new`. `line` is its place in the edit."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    marked: tuple[str, ...]
    """The block as written, each line with its mark."""
    line: int = 0


@dataclass(frozen=True)
class Edit:
    """A parsed edit: its header, the base it starts from, and the blocks for each edited file."""

    header: Mapping[str, str]
    base: Base
    blocks: Mapping[str, tuple[Block, ...]]


def parse_edit(text: str, name: str) -> Edit:
    """Read an edit. `name` is what errors call it. Raises EditError."""
    header: dict[str, str] = {}
    bases: set[Base] = set()
    marked: dict[str, list[tuple[int, list[str]]]] = {}
    current: list[tuple[int, list[str]]] | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        where = f"{name}, line {number}"
        if found := _FILE.fullmatch(line):
            bases.add("starter" if found[1] == "starter" else "solution")
            if found[2] in marked:
                raise EditError(f"{where}: {found[2]} is edited twice; put its blocks under one `---` line.")
            current = marked[found[2]] = []
        elif line == "@@" and current is not None:
            current.append((number, []))
        elif current:
            if line and line[0] not in " -+":
                raise EditError(f"{where}: a line of a block begins with a space, - or +; this is {line!r}.")
            current[-1][1].append(line or " ")
        elif line:
            _read_header(header, line, where, before_file=current is None)
    if not marked or not all(marked.values()):
        raise EditError(f"{name} changes nothing: after the header it needs `--- starter/policy.py`, `@@` and a block.")
    if len(bases) > 1:
        raise EditError(f"{name} edits files of the starter and of the solution; choose one of them as the base.")
    blocks = {file: tuple(_block(number, lines, name) for number, lines in found) for file, found in marked.items()}
    return Edit(header, bases.pop(), blocks)


def apply_blocks(text: str, blocks: Sequence[Block], base: str, name: str) -> str:
    """The text of `base` after an edit's blocks. Raises EditError unless each block fits exactly one place."""
    lines = text.split("\n")
    places = sorted(((_only_place(lines, block, base, name), block) for block in blocks), key=lambda found: found[0])
    for (start, block), (following, other) in itertools.pairwise(places):
        if start + len(block.old) > following:
            raise EditError(f"{name}: the blocks in line {block.line} and line {other.line} overlap; join them.")
    for start, block in reversed(places):
        lines[start : start + len(block.old)] = block.new
    return "\n".join(lines)


def render_edit(edit: Edit) -> str:
    """The text form of an edit, which `parse_edit` reads back."""
    lines = [f"{key}: {edit.header[key]}" for key in KEYS if key in edit.header]
    for file, blocks in edit.blocks.items():
        lines.append(f"--- {edit.base}/{file}")
        for block in blocks:
            lines += ["@@", *(line.rstrip() if line.isspace() else line for line in block.marked)]
    return "\n".join(lines) + "\n"


def block_of(marked: Sequence[str], line: int = 0) -> Block:
    """A block from its lines, each of which begins with its mark."""
    old = tuple(text[1:] for text in marked if text[0] != "+")
    new = tuple(text[1:] for text in marked if text[0] != "-")
    return Block(old, new, tuple(marked), line)


def places_of(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The indices at which the lines `wanted` occur together."""
    length = len(wanted)
    return [i for i in range(len(lines) - length + 1) if list(lines[i : i + length]) == list(wanted)]


def _read_header(header: dict[str, str], line: str, where: str, *, before_file: bool) -> None:
    found = _HEADER.fullmatch(line)
    if found is None or found[1] not in KEYS or not before_file:
        keys = ", ".join(f"`{key}: …`" for key in KEYS)
        raise EditError(f"{where}: expected one of {keys}, then `--- starter/FILE` or `--- solution/FILE`, then `@@`.")
    if found[1] in header:
        raise EditError(f"{where}: {found[1]} is given twice.")
    header[found[1]] = found[2]


def _block(number: int, marked: list[str], name: str) -> Block:
    while marked and marked[-1].isspace():
        marked.pop()
    block = block_of(marked, number)
    if not block.old:
        raise EditError(f"{name}, line {number}: the block has no line to find; add a line of context.")
    if block.old == block.new:
        raise EditError(f"{name}, line {number}: the block changes nothing.")
    return block


def _only_place(lines: list[str], block: Block, base: str, name: str) -> int:
    places = places_of(lines, block.old)
    if len(places) == 1:
        return places[0]
    shown = "\n".join(f"    {line}" for line in block.old)
    if not places:
        raise EditError(f"{name}, line {block.line}: {base} has no such lines:\n{shown}")
    at = ", ".join(str(place + 1) for place in places)
    raise EditError(f"{name}, line {block.line}: {base} has these lines {len(places)} times (lines {at}):\n{shown}")

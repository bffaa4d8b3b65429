"""From two versions of a file to the blocks of an edit, each with as little context as it needs.

A block's context is chosen among the lines of code around the change: comments and docstrings are reworded more often,
and an edit that quotes one would have to follow.
"""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from collections.abc import Iterator
from itertools import product

from labs.authoring.edits import Block, EditError, block_of, places_of

MOST_CONTEXT = 12
"""Lines of context tried on each side of a change."""
_CODE, _PROSE = 1, 20
"""What a line of context costs. A docstring is quoted only where a dozen lines of code would not do."""


def make_blocks(before: str, after: str) -> tuple[Block, ...]:
    """The blocks that turn `before` into `after`; none if they are equal. Raises EditError if no context is unique."""
    old, new = before.split("\n"), after.split("\n")
    costs = _costs(before)
    ranges = [(*_with_context(old, i1, i2, costs), i1, i2, j1, j2) for i1, i2, j1, j2 in _changes(old, new)]
    return tuple(block_of(marked) for marked in _joined(old, new, ranges))


def _changes(old: list[str], new: list[str]) -> Iterator[tuple[int, int, int, int]]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind != "equal":
            yield i1, i2, j1, j2


def _with_context(old: list[str], start: int, stop: int, costs: list[int]) -> tuple[int, int]:
    """The cheapest range around [start, stop) whose lines occur once."""
    best: tuple[int, int, int] | None = None
    for up, down in product(range(MOST_CONTEXT + 1), repeat=2):
        first, last = start - up, stop + down
        if first < 0 or last > len(old) or first == last:
            continue
        # An empty line at the edge identifies nothing; below the change it would be taken for the end of the block.
        if (up and not old[first].strip()) or (down and not old[last - 1].strip()):
            continue
        cost = sum(costs[first:start]) + sum(costs[stop:last])
        if (best is None or cost < best[0]) and len(places_of(old, old[first:last])) == 1:
            best = cost, first, last
    if best is None:
        raise EditError(
            f"The lines around line {start + 1} occur more than once, with {MOST_CONTEXT} lines of context too."
        )
    return best[1:]


def _joined(old: list[str], new: list[str], ranges: list[tuple[int, int, int, int, int, int]]) -> Iterator[list[str]]:
    """The marked lines of each block; blocks whose context touches become one."""
    marked: list[str] = []
    end = -1
    for number, (first, last, i1, i2, j1, j2) in enumerate(ranges):
        if marked and first > end:
            yield marked
            marked = []
        start = first if not marked else end
        marked += [f" {line}" for line in old[start:i1]]
        marked += [f"-{line}" for line in old[i1:i2]] + [f"+{line}" for line in new[j1:j2]]
        following = ranges[number + 1] if number + 1 < len(ranges) else None
        end = last if following is None else max(i2, min(last, following[2]))
        marked += [f" {line}" for line in old[i2:end]]
    if marked:
        yield marked


def _costs(text: str) -> list[int]:
    prose = _prose_lines(text)
    return [_PROSE if number in prose else _CODE for number in range(1, text.count("\n") + 2)]


def _prose_lines(text: str) -> set[int]:
    """The numbers of the lines that hold a comment or a string which is a statement of its own."""
    found = {number for number, line in enumerate(text.split("\n"), start=1) if line.lstrip().startswith("#")}
    try:
        tree = ast.parse(text)
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, tokenize.TokenError):
        return found  # a configuration, for instance
    found |= {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found

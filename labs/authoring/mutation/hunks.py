"""Towards the fault: the starter with one hunk of the fix alone, and the solution without one hunk."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.identity import Ids

OPERATOR = "one_hunk"
SENTENCE = "Of a fix in several places one is made, or all but one."
Made = tuple[str, str, str, int, str, dict[str, str]]
"""A mutant's fields, in their order."""


@dataclass(frozen=True)
class _Hunk:
    file: str
    starter: slice
    solution: slice


def partly_applied(starter: dict[str, str], solution: dict[str, str], ids: Ids) -> Iterator[Made]:
    """The mutants of a fix of two hunks or more; of one hunk there is no part."""
    hunks = [hunk for name in solution for hunk in _hunks(name, starter.get(name, ""), solution[name])]
    if len(hunks) < 2:
        return
    for hunk in hunks:
        yield _made(hunk, "only this hunk", [hunk], starter, solution, ids)
    if len(hunks) > 2:
        for hunk in hunks:
            rest = [other for other in hunks if other is not hunk]
            yield _made(hunk, "all but this hunk", rest, starter, solution, ids)


def _hunks(name: str, starter: str, solution: str) -> Iterator[_Hunk]:
    matcher = difflib.SequenceMatcher(None, starter.splitlines(), solution.splitlines(), autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag != "equal":
            yield _Hunk(name, slice(first, last), slice(start, end))


def _made(
    hunk: _Hunk, what: str, applied: list[_Hunk], starter: dict[str, str], solution: dict[str, str], ids: Ids
) -> Made:
    text = "\n".join(solution[hunk.file].splitlines()[hunk.solution])
    replaced = "\n".join(starter[hunk.file].splitlines()[hunk.starter])
    line = hunk.solution.start + 1
    summary = f"{what}: {summarise(replaced, text)}"
    edit = Edit(0, 0, "", line, "", "", " ".join(replaced.split()), f"{what} {' '.join(text.split())}", summary)
    files = {name: _apply(name, starter[name], solution[name], applied) for name in solution}
    return ids.of(OPERATOR, hunk.file, edit), OPERATOR, hunk.file, line, summary, files


def _apply(name: str, starter: str, solution: str, hunks: list[_Hunk]) -> str:
    lines, fixed = starter.splitlines(keepends=True), solution.splitlines(keepends=True)
    for hunk in reversed([one for one in hunks if one.file == name]):
        lines[hunk.starter] = fixed[hunk.solution]
    return "".join(lines)

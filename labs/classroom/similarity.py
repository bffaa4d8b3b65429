"""Pairs of submissions that are near-identical in what they changed. It shows where to look, and proves nothing.

Two learners who find the same short fix write the same line. So only what a learner added to the starter counts,
comments included, without what the shipped solution adds; and a change too small to be told apart by is left out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST = 30
"""Distinct n-grams of a change that is long enough to be compared."""
SIMILAR = 0.8
"""Least share of n-grams that two changes have in common (Jaccard index)."""
_N = 5
_TOKEN = re.compile(r"\w+|[^\w\s]")

NGram = tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """Two learners whose changes are near-identical."""

    first: str
    second: str
    similarity: float
    """Jaccard index of the n-grams, 0 to 1."""


def near_identical(
    texts: Mapping[str, str], starter: str, solution: str, *, least: int = LEAST, similar: float = SIMILAR
) -> list[Pair]:
    """The pairs of learners, the most similar first. `texts`: each learner's file."""
    usual = _ngrams(_added(solution, starter))
    changes = {student: _ngrams(_added(text, starter)) - usual for student, text in texts.items()}
    long = sorted((student, ngrams) for student, ngrams in changes.items() if len(ngrams) >= least)
    pairs = [
        Pair(first, second, len(mine & theirs) / len(mine | theirs))
        for (first, mine), (second, theirs) in itertools.combinations(long, 2)
    ]
    return sorted((pair for pair in pairs if pair.similarity >= similar), key=lambda pair: -pair.similarity)


def _added(text: str, starter: str) -> list[str]:
    """The lines that the starter does not have, each once: the time must not depend on what a learner repeats."""
    known = {line.strip() for line in starter.splitlines()}
    return [line for line in dict.fromkeys(text.splitlines()) if line.strip() not in known]


def _ngrams(lines: Sequence[str]) -> set[NGram]:
    tokens = [token for line in lines for token in _TOKEN.findall(line)]
    return {tuple(tokens[i : i + _N]) for i in range(len(tokens) - _N + 1)}

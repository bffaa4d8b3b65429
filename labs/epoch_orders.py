"""How the batches of two epochs differ, and the batches of one: frames are numbers, and a batch is a list of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

Batches = list[list[int]]
"""The frames of each batch."""


def by_epoch(processes: Sequence[Batches], epochs: int) -> list[Batches]:
    """The batches of all processes together, for each epoch; a process has equally many in each."""
    found: list[Batches] = [[] for _ in range(epochs)]
    for batches in processes:
        each = max(len(batches) // epochs, 1)
        for step, batch in enumerate(batches):
            found[min(step // each, epochs - 1)].append(batch)
    return found


def kept(first: Batches, second: Batches) -> float:
    """The share of neighbours in a batch of the first epoch that share a batch in the second."""
    place = {frame: number for number, batch in enumerate(second) for frame in batch}
    together = [place.get(a, -1) == place.get(b, -2) for batch in first for a, b in pairwise(batch)]
    return sum(together) / max(len(together), 1)


def used_twice(batches: Batches) -> int:
    """How many frames are used more than once."""
    return sum(count > 1 for count in Counter(chain.from_iterable(batches)).values())


def different(found: Batches, wanted: Batches) -> int:
    """How many batches are other ones, too few or too many."""
    return sum(a != b for a, b in zip(found, wanted, strict=False)) + abs(len(found) - len(wanted))


def begins(found: Batches, whole: Batches, start: int, each: int) -> str:
    """Where a run that continues after `start` steps begins in the whole run, with `each` steps in an epoch."""
    if found == whole[start:]:
        return "where it should"
    for position in range(start % each, len(whole), each):
        if found[:1] == whole[position : position + 1]:
            return f"in epoch {position // each}"
    return "elsewhere"

"""How many segments data sets decode whose readers are bounded, simulated for several ways to evict.

A data set keeps 8 readers, a reader the 2 segments of 8 images that it read last.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence

SEGMENT = 8
READERS, SEGMENTS = 8, 2
Reads = Sequence[tuple[int, int]]
"""The data set and the index of each read."""
Cache = dict[tuple[int, int], list[int]]
"""By data set and episode the segments that its reader keeps, least recently used first, both."""
Evict = Callable[[Cache], None]
"""Makes room in a full cache."""


def first(cache: Cache) -> None:
    """Close the first reader: the one used least recently, or opened first if a use does not reorder."""
    del cache[next(iter(cache))]


def last(cache: Cache) -> None:
    """Close the reader that was used last."""
    del cache[next(reversed(cache))]


def everything(cache: Cache) -> None:
    """Close all readers."""
    cache.clear()


def decoded(lengths: Sequence[Sequence[int]], order: Reads, evict: Evict = first, *, reorder: bool = True) -> list[int]:
    """After each read, how many segments have been decoded, where each data set has its own cache.

    Without `reorder` readers stay in the order in which they were opened.
    """
    starts = [[0, *itertools.accumulate(own)] for own in lengths]
    caches: list[Cache] = [{} for _ in lengths]
    count, counts = 0, []
    for which, index in order:
        episode = bisect.bisect_right(starts[which], index) - 1
        segment = (index - starts[which][episode]) // SEGMENT
        cache, key = caches[which], (which, episode)
        if key not in cache:
            if len(cache) == READERS:
                evict(cache)
            cache[key] = []
        elif reorder:
            cache[key] = cache.pop(key)
        kept = cache[key]
        if segment in kept:
            kept.remove(segment)
        else:
            count += 1
            del kept[: len(kept) + 1 - SEGMENTS]
        kept.append(segment)
        counts.append(count)
    return counts

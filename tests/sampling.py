"""Which parameters of a test run in the ordinary suite. The others are marked `extended`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Item = TypeVar("Item")


def first_of_each(items: Iterable[Item], group: Callable[[Item], Hashable], count: int = 1) -> list[bool]:
    """Whether each item is among the first `count` of its group.

    >>> first_of_each(["a1", "a2", "b1"], lambda name: name[0])
    [True, False, True]
    """
    seen: Counter[Hashable] = Counter()
    ordinary = []
    for item in items:
        seen[group(item)] += 1
        ordinary.append(seen[group(item)] <= count)
    return ordinary


def one_in(every: int, items: Sequence[Item]) -> list[bool]:
    """True for the first item and each `every`-th after it."""
    return [number % every == 0 for number in range(len(items))]


def parameters(
    items: Sequence[Item],
    ordinary: Sequence[bool],
    *,
    name: Callable[[Item], str],
    values: Callable[[Item], tuple[Any, ...]] = lambda item: (item,),
    marks: Callable[[Item], Sequence[pytest.MarkDecorator]] = lambda _: (),
) -> list[Any]:
    """The items as parameters with the id `name(item)`; those that are not `ordinary` are extended."""
    return [
        pytest.param(
            *values(item), id=name(item), marks=[*marks(item), *(() if is_ordinary else (pytest.mark.extended,))]
        )
        for item, is_ordinary in zip(items, ordinary, strict=True)
    ]

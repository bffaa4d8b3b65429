"""Phrases for the messages of rules: counted nouns and shortened lists. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "step"), counted(2, "step"), counted(3, "batch", "batches")
    ('1 step', '2 steps', '3 batches')
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def listed(items: Iterable[object], most: int | None = None) -> str:
    """The items joined with commas. Items after the first `most` are replaced by an ellipsis.

    >>> listed([0, 2]), listed(["a", "b", "c"], most=2)
    ('0, 2', 'a, b, …')
    """
    shown = [str(item) for item in items]
    return ", ".join(shown if most is None or len(shown) <= most else [*shown[:most], "…"])


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """A noun with the numbers that it refers to.

    >>> numbered("rank", [1]), numbered("rank", [0, 2])
    ('rank 1', 'ranks 0, 2')
    """
    shown = list(numbers)
    return f"{noun}{'' if len(shown) == 1 else 's'} {listed(shown)}"

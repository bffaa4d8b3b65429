"""The ordinary suite runs a part of the parameters, and never none of them."""

from __future__ import annotations

import pytest

from sampling import first_of_each, one_in, parameters


def test_the_first_of_each_group_are_ordinary() -> None:
    names = ["a1", "b1", "a2", "a3", "b2"]
    assert first_of_each(names, lambda name: name[0]) == [True, True, False, False, False]
    assert first_of_each(names, lambda name: name[0], 2) == [True, True, True, False, True]


def test_one_in_some_is_ordinary_and_the_first_always() -> None:
    assert one_in(3, list("abcde")) == [True, False, False, True, False]
    assert one_in(3, ["a"]) == [True]


def test_the_others_are_extended_and_keep_their_own_marks() -> None:
    slow = pytest.mark.slow
    first, second = parameters(
        ["a b", "c"], [True, False], name=lambda one: one.replace(" ", "-"), marks=lambda _: [slow]
    )
    assert (first.id, first.values, [mark.name for mark in first.marks]) == ("a-b", ("a b",), ["slow"])
    assert (second.id, [mark.name for mark in second.marks]) == ("c", ["slow", "extended"])

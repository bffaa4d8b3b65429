"""The phrases that rules share: singular and plural, and lists that are cut."""

from __future__ import annotations

import pytest

from debugkit.rule_text import counted, listed, numbered


@pytest.mark.parametrize(("number", "text"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps")])
def test_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert counted(number, "step") == text


def test_irregular_plural_is_given() -> None:
    assert [counted(number, "batch", "batches") for number in (1, 3)] == ["1 batch", "3 batches"]


@pytest.mark.parametrize(
    ("items", "most", "text"),
    [
        ([], None, ""),
        (["a"], 2, "a"),
        (["a", "b"], 2, "a, b"),
        (["a", "b", "c"], 2, "a, b, …"),
        ([0, 1, 2], None, "0, 1, 2"),
    ],
)
def test_long_list_ends_in_an_ellipsis(items: list[object], most: int | None, text: str) -> None:
    assert listed(items, most) == text


def test_one_number_has_a_singular_noun() -> None:
    assert numbered("rank", [3]) == "rank 3"
    assert numbered("rank", iter([0, 2])) == "ranks 0, 2"

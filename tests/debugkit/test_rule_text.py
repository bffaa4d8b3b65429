"""The phrases that rules share: names in backticks, lists that are cut, singular and plural, numbers."""

from __future__ import annotations

import pytest

from debugkit.rule_text import (
    amount,
    amounts_apart,
    counted,
    entry_name,
    function_text,
    listed,
    module_name,
    numbered,
    quoted,
    sentence,
    verb,
)


@pytest.mark.parametrize(("number", "text"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (12345, "12,345 steps")])
def test_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert counted(number, "step") == text


def test_irregular_plural_is_given() -> None:
    assert [counted(number, "batch", "batches") for number in (1, 3)] == ["1 batch", "3 batches"]


@pytest.mark.parametrize(("number", "text"), [(0, "are"), (1, "is"), (2, "are")])
def test_verb_agrees_with_its_number(number: int, text: str) -> None:
    assert verb(number, "is", "are") == text


@pytest.mark.parametrize(
    ("items", "most", "text"),
    [
        ([], None, ""),
        (["a"], 2, "a"),
        (["a", "b"], 2, "a and b"),
        (["a", "b", "c"], 2, "a, b and 1 more"),
        (["a", "b", "c", "d"], 3, "a, b, c and 1 more"),
        ([0, 1, 2], None, "0, 1 and 2"),
    ],
)
def test_rest_of_a_long_list_is_counted(items: list[object], most: int | None, text: str) -> None:
    assert listed(items, most) == text


def test_each_quoted_name_is_in_backticks() -> None:
    assert quoted(["head.weight"]) == "`head.weight`"
    assert quoted(f"p{number}" for number in range(5)) == "`p0`, `p1`, `p2` and 2 more"
    assert quoted("ab", most=None) == "`a` and `b`"


def test_one_number_has_a_singular_noun() -> None:
    assert numbered("rank", [3]) == "rank 3"
    assert numbered("rank", iter([0, 2])) == "ranks 0 and 2"


def test_module_that_is_only_numbered_is_called_a_module() -> None:
    assert [module_name(path) for path in ("vision.0", "0", "", None)] == [
        "`vision.0`",
        "module `0`",
        "the model",
        "the model",
    ]


def test_entry_that_is_only_numbered_is_called_an_entry() -> None:
    assert [entry_name(path) for path in ("next.state", "1", "")] == ["`next.state`", "entry `1`", "the input"]
    assert entry_name("", "the target") == "the target"


def test_function_without_a_name_is_called_by_what_it_does() -> None:
    assert function_text("decode", "decodes") == "`decode`"
    assert function_text("<lambda>", "decodes") == "the lambda that decodes"


def test_sentence_begins_with_a_capital_or_with_code() -> None:
    assert sentence("the input holds NaN.") == "The input holds NaN."
    assert sentence("`head` runs.") == "`head` runs."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00012345, "0.000123"),
        (-0.5, "-0.5"),
        (999.6, "1,000"),
        (1234.0, "1,230"),
        (32768.0, "32,800"),
        (-32768.0, "-32,800"),
        (1e6, "1,000,000"),
        (1.01e7, "1.01e+07"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_amount_has_three_digits_and_no_exponent_up_to_a_million(value: float, text: str) -> None:
    assert amount(value) == text


def test_amounts_have_as_many_digits_as_it_takes_to_tell_them_apart() -> None:
    assert amounts_apart(9.006, 9.0) == ("9.01", "9")
    assert amounts_apart(2.30261, 2.30258) == ("2.30261", "2.30258")
    assert amounts_apart(1.0, 1.0) == ("1", "1")

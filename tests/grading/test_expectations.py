"""The judges hold exactly when the property does, and take any nonsense without an exception of their own."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labs.grading import Opaque, Rng, expect
from labs.grading.difference import difference
from labs.grading.expectations import CheckRecord, ExpectationError, current_record
from labs.grading.grades import MOST_SHOWN, plain

EXTENDED_DEPENDS_ON = ("labs/*.py", "labs/grading", "tests/grading")

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
NONSENSE = st.sampled_from(
    [
        None,
        "text",
        {},
        [],
        (),
        Opaque("policy.A"),
        torch.empty(0),
        torch.ones(2, 2, dtype=torch.complex64),
        True,
        10**400,
    ]
)


def holds(judge: str, measured: Any, *arguments: Any) -> bool:
    try:
        getattr(expect(measured, "it"), judge)(*arguments)
    except ExpectationError:
        return False
    return True


@given(NUMBERS, NUMBERS)
def test_bounds_are_the_comparison_of_floats(value: float, bound: float) -> None:
    assert holds("below", value, bound) == (value < bound)
    assert holds("above", torch.tensor(value, dtype=torch.float64), bound) == (value > bound)
    assert holds("at_most", [value], bound) == (value <= bound)
    assert holds("at_least", value, bound) == (value >= bound)
    assert holds("finite", value) == math.isfinite(value)


@given(NUMBERS, NUMBERS)
def test_close_is_torchs_isclose(measured: float, expected: float) -> None:
    a, b = torch.tensor(measured, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
    wanted = bool(torch.isclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True))
    assert holds("close_to", measured, expected) == holds("close_to", a, b) == wanted


@given(NONSENSE, st.sampled_from([1.0, torch.ones(2), [1, 2], {"a": 1}, "name", True]))
def test_nonsense_is_a_failed_expectation_and_never_another_exception(measured: Any, expected: Any) -> None:
    if measured is True and expected is True:
        return
    assert not holds("close_to", measured, expected)
    assert not holds("equals", measured, expected)
    for judge, arguments in {"below": (1,), "above": (-1,), "between": (0, 1), "finite": (), "has_shape": (7,)}.items():
        assert not holds(judge, measured, *arguments), judge


@pytest.mark.parametrize("value", [1, 1.0, "True", None, torch.ones(1), torch.tensor([], dtype=torch.bool)])
def test_only_a_bool_is_true(value: Any) -> None:
    assert not holds("is_true", value)
    assert holds("is_true", torch.tensor([True, True]))
    assert not holds("is_false", value)


def test_one_of_does_not_take_an_equal_of_another_type() -> None:
    assert holds("one_of", "a", ["a", "b"])
    assert not holds("one_of", True, [1, 2])


def test_equals_tells_integers_apart_that_floats_cannot() -> None:
    large = torch.tensor([2**60, 2**60 + 1])
    assert not holds("equals", large, large.flip(0))
    assert not holds("equals", torch.ones(2, dtype=torch.float64), torch.ones(2))


@pytest.mark.parametrize(
    ("measured", "expected", "says"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2), "has shape [2, 3], not [3, 2]"),
        (torch.tensor([1.0, 2.0, 5.0]), torch.tensor([1.0, 2.0, 3.0]), "first at [2]: 5, not 3"),
        (torch.tensor([math.nan, 1.0]), torch.tensor([0.0, 1.0]), "(some values are not finite)"),
        (torch.tensor(1.5), 1.0, "is 1.5, not 1"),
        ({"a": torch.ones(2)}, {"a": torch.zeros(2)}, "first at ['a'] at [0]: 1, not 0"),
        ({"a": 1}, {"b": 1}, "lacks 'b' and has 'a' too many"),
        ([1, 2], [1, 2, 3], "has length 2, not 3"),
        (Opaque("policy.Thing"), 1.0, "is an object of type policy.Thing, not 1"),
    ],
)
def test_a_difference_says_where_and_how_much(measured: Any, expected: Any, says: str) -> None:
    assert says in (difference(measured, expected, rtol=1e-5, atol=1e-6) or "")


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_numbers_that_differ_are_never_printed_alike(shape: tuple[int, ...]) -> None:
    wanted = torch.full(shape, 0.1234567, dtype=torch.float64)
    with pytest.raises(ExpectationError) as caught:
        expect(wanted + 1e-9, "the loss").close_to(wanted, rtol=0.0, atol=0.0)
    assert re.search(r"0\.1234567\d+.*, not 0\.1234567", str(caught.value))


def test_what_was_measured_and_expected_is_recorded_whether_it_holds_or_not() -> None:
    record = CheckRecord()
    token = current_record.set(record)
    try:
        expect(torch.tensor(2.0), "the loss").close_to(2.0)
        assert (record.measured, record.expected, record.named["the loss"].item()) == (2.0, 2.0, 2.0)
        with pytest.raises(ExpectationError, match="the norm is nan; expected < 1"):
            expect(math.nan, "the norm").below(1)
        assert (record.measured, record.expected) == ("nan", "< 1")
    finally:
        current_record.reset(token)


@pytest.mark.extended
@given(st.integers(0, 2**31), st.text(max_size=8))
def test_the_same_key_draws_the_same_inputs(seed: int, check: str) -> None:
    one, two, other = Rng(seed, check), Rng(seed, check), Rng(seed, check + "x")
    assert torch.equal(one.normal(5), two.normal(5))
    assert one.seed() == two.seed()
    assert not torch.equal(one.normal(5), other.normal(5))


@pytest.mark.parametrize("measured", [torch.ones(2), torch.full((3,), math.nan), 7.0, torch.ones(3, 1)])
def test_another_form_or_nan_is_not_a_different_value(measured: Any) -> None:
    assert not holds("differs_from", measured, torch.zeros(3))
    assert holds("differs_from", torch.ones(3), torch.zeros(3))


@pytest.mark.extended
@given(st.recursive(st.text() | st.floats(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_what_a_document_shows_of_a_measurement_is_short(value: Any) -> None:
    shown = json.dumps(plain([value] * 500), allow_nan=False)
    assert len(shown) < 40 * MOST_SHOWN


def test_a_short_measurement_is_shown_whole() -> None:
    value = {"losses": [0.5] * 100, "names": ["head.weight"] * 20}
    assert plain(value) == value
    assert plain("x" * 10 * MOST_SHOWN).endswith("x …")
    assert plain([1] * 10 * MOST_SHOWN)[-1].endswith("more")

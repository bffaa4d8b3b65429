"""How a failed expectation reads: each form of `expect`'s messages with the values that were recorded for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from labs.grading.comparison import Comparison, compare
from labs.grading.expectations import CheckRecord, ExpectationError, current_record, expect

NAMES = [f"vision.{i}.weight" for i in range(6)]
RATES = dict.fromkeys(NAMES, 0.001)


def told(judge: Any) -> Comparison:
    """What a learner reads after the expectation that `judge` states and that does not hold."""
    token = current_record.set(record := CheckRecord())
    try:
        with pytest.raises(ExpectationError) as failed:
            judge()
    finally:
        current_record.reset(token)
    return compare(record.measured, record.expected, str(failed.value))


CASES: dict[str, tuple[Any, Comparison]] = {
    "a number": (
        lambda: expect(1.8, "the loss").close_to(2.1),
        Comparison("1.8 (the loss)", "2.1"),
    ),
    "a bound": (
        lambda: expect(4, "the number of parameters").at_least(6),
        Comparison("4 (the number of parameters)", "≥ 6"),
    ),
    "a clause about a number": (
        lambda: expect(0.27, "The step's distance from float32's, relative:").below(0.1),
        Comparison("0.27 (the step's distance from float32's, relative)", "< 0.1"),
    ),
    "a tensor of one value": (
        lambda: expect(torch.tensor([float("nan")]), "a joint at its constant value, normalised").finite(),
        Comparison("A joint at its constant value, normalised: nan, expected finite numbers."),
    ),
    "a clause": (
        lambda: expect(False, "The detail gets a gradient:").is_true(),
        Comparison("no (the detail gets a gradient)", "yes"),
    ),
    "a clause that must not hold": (
        lambda: expect(True, "the tower moves,").is_false(),
        Comparison("yes (the tower moves)", "no"),
    ),
    "an exception's name": (
        lambda: expect(None, "what freeze raised").equals("ValueError"),
        Comparison("None (what freeze raised)", "ValueError"),
    ),
    "no names expected": (
        lambda: expect(NAMES, "the list of frozen parameters").equals([]),
        Comparison(
            "`vision.0.weight`, `vision.1.weight`, `vision.2.weight` and 3 more (the list of frozen parameters)", "none"
        ),
    ),
    "other names": (
        lambda: expect(["a", "b", "x"], "the list of parts").equals(["a", "b", "c", "d"]),
        Comparison("missing: `c` and `d`; not expected: `x` (the list of parts)", "4 names"),
    ),
    "one other name": (
        lambda: expect(["a", "x"], "the list of parts").equals(["a", "b"]),
        Comparison("missing: `b`; not expected: `x` (the list of parts)", "2 names"),
    ),
    "a table": (
        lambda: expect(RATES, "the learning rates").close_to({**RATES, NAMES[1]: 5e-4, NAMES[4]: 5e-4}),
        Comparison(
            "`vision.1.weight` 0.001, `vision.4.weight` 0.001 (the learning rates)",
            "`vision.1.weight` 0.0005, `vision.4.weight` 0.0005",
        ),
    ),
    "nested shapes": (
        lambda: expect([[92, 128], [128, 92]], "the list of shapes").equals([[92, 128], [92, 128]]),
        Comparison("The list of shapes: [1][0] is 128, not 92."),
    ),
    "a tensor": (
        lambda: expect(torch.tensor([0.1, 0.5]), "the action").close_to(torch.tensor([0.1, 0.25])),
        Comparison("The action: 1 of 2 values differs by up to 0.25; first at [1]: 0.5, not 0.25."),
    ),
    "a tensor that must differ": (
        lambda: expect(torch.ones(2), "the action under another image").differs_from(torch.ones(2)),
        Comparison("The action under another image: the same values, but they should differ."),
    ),
    "a tensor out of bounds": (
        lambda: expect(torch.tensor([0.5, 2.0]), "each gradient norm").below(1.0),
        Comparison("Each gradient norm: 1 of 2 values is not < 1; the first, at [1], is 2."),
    ),
    "NaN": (
        lambda: expect(float("nan"), "the loss").finite(),
        Comparison("nan (the loss)", "finite numbers"),
    ),
    "a text": (
        lambda: expect("a lamb", "the next word").equals("a wolf"),
        Comparison("a lamb (the next word)", "a wolf"),
    ),
    "nothing": (
        lambda: expect(None, "the loss").close_to(1.5),
        Comparison("None (the loss)", "1.5"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_failed_expectation_reads_as_words(case: str) -> None:
    judge, wanted = CASES[case]
    assert told(judge) == wanted


def test_a_table_that_was_cut_is_described_by_the_message() -> None:
    table = {f"a.parameter.with.a.long.name.{i}": 1e-3 for i in range(200)}
    found = told(lambda: expect(table, "the learning rates").close_to(dict.fromkeys(table, 0.0005)))
    assert found == Comparison("The learning rates: `a.parameter.with.a.long.name.0` is 0.001, not 0.0005.")


def test_a_message_of_the_checks_own_is_kept_beside_the_values() -> None:
    assert compare(3, 4, "One batch too few.") == Comparison("3", "4", "One batch too few.")
    assert compare(2.0, 2.0, "the graph of the loss is cut.") == Comparison("The graph of the loss is cut.")

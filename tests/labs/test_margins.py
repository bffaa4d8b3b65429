"""Which comparisons are listed as near to their bound, and which are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

import pytest
import torch

from labs.authoring.bench import Bench, Refusal
from labs.authoring.margins import NearBound, near_bounds, tolerances_apart
from labs.authoring.variants import alternatives
from labs.authoring.verify_many import OnDemandServer
from labs.cli.show_verification import show_margins
from labs.grading import expectations
from labs.grading.catalog import Lab
from labs.grading.expectations import Expectation, ExpectationError, expect


@pytest.fixture
def near(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[NearBound]]:
    """Takes an expression with `x`, and its value on each seed; the expression stands in the lab's checks.py."""

    def found(check: str, *values: float) -> list[NearBound]:
        code = compile(f"def test_a(x):\n    {check}", str(lab.folder / "checks.py"), "exec")

        def over_seeds(self: Bench, files: object, seeds: Iterable[int], say: object) -> dict[int, Refusal]:
            return _refusals(code, dict(zip(seeds, values, strict=True)))

        monkeypatch.setattr(Bench, "over_seeds", over_seeds)
        return near_bounds(lab, OnDemandServer(), len(values))

    return found


def _refusals(code: CodeType, values: dict[int, float]) -> dict[int, Refusal]:
    names: dict[str, Any] = {"expect": expect, "torch": torch}
    exec(code, names)
    refused = {}
    for seed, value in values.items():
        try:
            names["test_a"](value)
        except ExpectationError as error:
            refused[seed] = Refusal("test_a", str(error))
    return refused


@pytest.mark.parametrize(
    ("check", "values", "words"),
    [
        ("expect(x, 'the share').above(0.3)", (0.4, 0.5, 0.7), "the share: came to 0.4, expected > 0.3; on average"),
        ("expect(x, 'the share').below(0.3)", (0.2, 0.29, 0.1), "the share: came to 0.29, expected < 0.3; on average"),
        ("expect(x, 'the lamp').between(1, 2)", (1.9, 1.2, 1.4), "the lamp: came to 1.9, expected 1 … 2; on average"),
        ("expect(x, 'the loss').close_to(2.0, rtol=0, atol=1)", (2, 2.4), "the loss: needs 0.4 of its tolerance"),
        (
            "expect(x, 'the head').differs_from(2.0, rtol=0, atol=.1)",
            (3, 2.2),
            "the head: must differ, and does so by 2 of the tolerance",
        ),
    ],
)
def test_a_small_margin_is_listed_for_each_correct_fix(
    lab: Lab, near: Callable[..., list[NearBound]], check: str, values: tuple[float, ...], words: str
) -> None:
    (found,) = near(check, *values)
    assert (found.check, found.line) == ("test_a", 2)
    assert list(found.words) == ["the solution", *(one.label for one in alternatives(lab))]
    assert all(one.startswith(words) for one in found.words.values())


@pytest.mark.parametrize(
    ("check", "values"),
    [
        ("expect(x, 'the share').above(0.3)", (0.7, 0.71, 0.69)),  # many deviations away
        ("expect(x, 'the change').above(1e-3)", (0.01, 0.09, 0.5)),  # many times the bound
        ("expect(x, 'the images').at_most(128)", (128, 120, 90)),  # reached exactly: a limit by design
        ("expect(x, 'the loss').close_to(2.0, rtol=0, atol=1)", (2.2, 1.9)),
        ("expect(x, 'the head').differs_from(2.0, rtol=0, atol=.1)", (3, 2.4)),
        ("expect(x, 'the count').equals(2)", (2, 2)),
    ],
)
def test_a_wide_margin_is_not_listed(
    near: Callable[..., list[NearBound]], check: str, values: tuple[float, ...]
) -> None:
    assert near(check, *values) == []


def test_a_refusal_is_near_too_and_expect_is_as_before_afterwards(near: Callable[..., list[NearBound]]) -> None:
    (found,) = near("expect(x, 'the share').above(0.3)", 0.2, 0.5, 0.4)
    assert found.words["the solution"].startswith("the share: came to 0.2, expected > 0.3")
    assert type(expect(1)) is Expectation is expectations.Expectation


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0]), 5.0),
        ({"a": 1.0, "b": [1.0, 1.2]}, {"a": 1.1, "b": [1.0, 1.0]}, 2.0),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 0j]), 10.0),
        ("text", "text", 0.0),
        (torch.ones(2), torch.ones(3), 0.0),
        (None, 1.0, 0.0),
        (float("nan"), float("nan"), 0.0),
        ([], [], 0.0),
    ],
)
def test_the_largest_difference_counts(one: object, other: object, apart: float) -> None:
    assert tolerances_apart(one, other, rtol=0.0, atol=0.1) == pytest.approx(apart)


def test_equal_words_are_shown_once(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    show_margins(lab, [NearBound("test_a", 7, {"the solution": "the share: 1", "alternative_b": "the share: 1"})])
    shown = capsys.readouterr().out
    assert "test_a, checks.py:7" in shown
    assert shown.count("the share: 1") == 1
    assert "(the solution, alternative_b)" in shown
    show_margins(lab, [])
    assert "every comparison is far from its bound" in capsys.readouterr().out

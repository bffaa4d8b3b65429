"""Judges of actions, on made-up observations: where each threshold lies, and what it is compared with."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding
from debugkit.rule import Context, find_rule
from debugkit.rules.dk402_normaliser_degenerate import NormalisedValues, Normalisers, NormaliserStatistics
from debugkit.rules.dk403_action_lag import ActionLag
from debugkit.rules.dk404_privileged_input import PrivilegedInput, PrivilegedInputs
from debugkit.rules.dk405_action_token_round_trip import ActionTokenisers, ActionTokens, TokenisedDimension
from debugkit.rules.dk406_policy_remembers_last_episode import EpisodeMemory
from debugkit.rules.dk407_train_serve_skew import PreparedEntry, PreparedFrames
from debugkit.rules.dk408_mirrored_action import Source, SourcesOfActions, TwoSources
from debugkit.rules.dk409_plans_not_followed import ExecutedDimension, ExecutedPlans

FLOOR = 1e-5
LAGS = tuple(range(-5, 6))


def judged(code: str, *observations: object) -> list[Finding]:
    rule = find_rule(code)
    return list(rule.judge(*observations, Context(rule, Declare())))


def severities(code: str, *observations: object) -> list[str]:
    return [str(finding.severity) for finding in judged(code, *observations)]


# Normalisers


def held(spread: tuple[float, ...], reaction: tuple[float, ...] | None, finite: bool = True) -> Normalisers:
    statistics = NormaliserStatistics("policy", "statistics", ("mean", "std"), spread, finite, reaction)
    return Normalisers((statistics,), ())


@pytest.mark.parametrize(
    ("spread", "reaction", "severity"),
    [
        ((1.0, 0.0), (0.01, math.nan), "error"),
        ((1.0, 0.0), (0.01, math.inf), "error"),
        ((1.0, 0.0), (0.01, 1e6), "info"),  # a constant is added
        ((1.0, 1e-7), (0.01, 1e5), "info"),
        ((1.0, 0.0), (0.01, 0.01), None),  # guarded
        ((1.0, 0.0), None, "warning"),
        ((1e-4, 1e-3), (100.0, 10.0), None),  # small units
        ((1.0, 1.0), None, None),
    ],
)
def test_degenerate_statistics(
    spread: tuple[float, ...], reaction: tuple[float, ...] | None, severity: str | None
) -> None:
    assert severities("DK402", held(spread, reaction)) == ([severity] if severity else [])


def test_a_constant_added_to_no_spread_is_a_warning_if_the_data_move_there() -> None:
    statistics = held((1.0, 0.0), (0.01, 1e6)).statistics
    for share, severity in ((0.0, "info"), (0.5, "warning")):
        seen = NormalisedValues("policy", "statistics", 32, (0.0, 0.0), (1.0, 1.0), (0.0, share), 1e6)
        assert severities("DK402", Normalisers(statistics, (seen,))) == [severity]


def test_statistics_that_are_not_finite_are_an_error() -> None:
    assert severities("DK402", held((math.inf,), None, finite=False)) == ["error"]


def values(rows: int, median: float, spread: float, share: float) -> Normalisers:
    return Normalisers((), (NormalisedValues("policy", "statistics", rows, (median,), (spread,), (share,), 9.0),))


@given(st.integers(16, 500), st.floats(-5, 5), st.floats(0.02, 5), st.floats(0, 0.02))
def test_data_within_the_bounds_fits_its_statistics(rows: int, median: float, spread: float, share: float) -> None:
    assert judged("DK402", values(rows, median, spread, share)) == []


@pytest.mark.parametrize(
    ("rows", "median", "spread", "share", "fires"),
    [
        (16, 5.1, 1.0, 0.0, True),
        (16, -3200.0, 1.0, 1.0, True),
        (16, 0.0, 1.0, 0.021, True),
        (16, 0.0, 0.019, 0.0, True),
        (16, 0.0, 0.0, 0.0, False),  # nothing moves in this batch
        (15, -3200.0, 1.0, 1.0, False),
    ],
)
def test_misfitting_data(rows: int, median: float, spread: float, share: float, fires: bool) -> None:
    assert bool(judged("DK402", values(rows, median, spread, share))) is fires


def test_degenerate_statistics_and_their_data_are_one_finding() -> None:
    both = Normalisers(held((1.0, 0.0), (0.01, math.nan)).statistics, values(64, 1e6, 1.0, 1.0).values)
    assert len(judged("DK402", both)) == 1


# Time


@given(st.lists(st.floats(-1, 1), min_size=11, max_size=11))
def test_a_lag_is_a_clear_peak_that_is_not_at_zero(correlation: list[float]) -> None:
    found = judged("DK403", ActionLag("batch", 100, LAGS, tuple(correlation), True, 2))
    peak = max(correlation)
    clear = peak >= 0.5 and peak - correlation[5] >= 0.1
    assert bool(found) == clear
    assert all(correlation[LAGS.index(finding.evidence["lag"])] == peak for finding in found)  # type: ignore[arg-type]


@pytest.mark.parametrize(("lag", "words"), [(2, "2 steps later"), (1, "1 step later"), (-1, "1 step before")])
def test_the_direction_of_a_lag_is_said(lag: int, words: str) -> None:
    correlation = tuple(1.0 if each == lag else 0.0 for each in LAGS)
    (finding,) = judged("DK403", ActionLag("batch", 100, LAGS, correlation, True, 2))
    assert words in finding.message


# Inference


@given(st.floats(0, 1), st.floats(0, 1))
def test_each_privileged_input_is_held_against_the_floor(target: float, future: float) -> None:
    inputs = (PrivilegedInput("action", "target", "", target), PrivilegedInput("next.image", "future", "", future))
    found = judged("DK404", PrivilegedInputs(inputs, FLOOR))
    assert [finding.evidence["path"] for finding in found] == [each.path for each in inputs if each.moved > FLOOR]


@pytest.mark.parametrize(
    ("has_reset", "moved", "expected"),
    [
        (True, 0.1, ["error"]),
        (False, 0.1, ["warning"]),
        (True, FLOOR, []),
        (False, 0.0, []),
        (True, math.inf, ["error"]),
    ],
)
def test_memory_across_episodes(has_reset: bool, moved: float, expected: list[str]) -> None:
    assert severities("DK406", EpisodeMemory(has_reset, moved, 1, FLOOR, "")) == expected


def test_each_entry_prepared_differently_is_a_finding() -> None:
    entries = tuple(PreparedEntry(path, "values differ", 0.1) for path in ("pixel_values", "input_ids"))
    assert len(judged("DK407", PreparedFrames(entries, 3, (), FLOOR, None))) == 2
    assert judged("DK407", PreparedFrames((), 3, ("image",), FLOOR, None)) == []


# Tokens


@pytest.mark.parametrize(
    ("bias", "outside", "unstable", "words"),
    [
        (0.0, 0, 0, None),
        (0.09, 0, 0, None),
        (-0.5, 0, 0, "on average -0.5 bins away"),
        (0.0, 3, 2, "3 of 64 bins"),
        (0.0, 0, 2, "2 of 64 tokens"),
    ],
)
def test_action_tokens(bias: float, outside: int, unstable: int, words: str | None) -> None:
    good = TokenisedDimension(0, 64, 0.0, 0, 0.01, 0)
    tried = TokenisedDimension(1, 64, bias, outside, abs(bias), unstable)
    pair = ActionTokens("bins", "encode", "decode", None, -1.0, 1.0, (good, tried))
    found = judged("DK405", ActionTokenisers((pair,)))
    assert [words in finding.message for finding in found] == ([True] if words else [])
    assert all(finding.evidence["dimensions"] == [1] for finding in found)


# Sources

NAN = math.nan
NO_RESPONSE = (NAN, NAN)
MIRRORED = TwoSources(2, 0, 1, 1.0, (0.1, 0.9), 0.05, 0.8, NO_RESPONSE)
DRIVEN = TwoSources(1, 0, 1, None, (0.0, 0.0), NAN, NAN, (0.9, -0.9))


def sources(*pairs: TwoSources) -> SourcesOfActions:
    named = tuple(Source(name, 100, None) for name in ("bench", "cell", "desk"))
    return SourcesOfActions("train", "action", named, pairs)


def test_the_message_names_the_dimension_both_sources_and_both_shares() -> None:
    (finding,) = judged("DK408", sources(MIRRORED))
    assert finding.message == (
        "`action[2]` of source `cell` is mirrored against that of `bench`: it is 1 in 90% of the frames of `cell` and "
        "in 10% of those of `bench`, although the states are alike."
    )
    assert finding.evidence["share_of_the_higher_value"] == [0.9, 0.1]
    assert "correlation" not in finding.evidence


@pytest.mark.parametrize(
    ("change", "is_found"),
    [
        ({"shares": (0.24, 0.76)}, True),
        ({"shares": (0.26, 0.74)}, False),  # not far enough apart
        ({"shares": (0.04, 0.77)}, True),
        ({"shares": (0.04, 0.74)}, False),  # not exchanged
        ({"high": None, "shares": (0.0, 0.0)}, False),
        ({"state_distance": 0.2}, True),
        ({"state_distance": 0.21}, False),
        ({"state_distance_mirrored": 0.5}, True),
        ({"state_distance_mirrored": 0.49}, False),  # states that look the same either way
        ({"state_distance": NAN, "state_distance_mirrored": NAN}, False),
    ],
)
def test_exchanged_shares_are_a_finding_where_the_states_are_alike(change: dict[str, Any], is_found: bool) -> None:
    assert bool(judged("DK408", sources(replace(MIRRORED, **change)))) == is_found


@pytest.mark.parametrize(
    ("responses", "is_found"),
    [
        ((0.7, -0.7), True),
        ((-0.8, 0.9), True),
        ((0.69, -0.9), False),
        ((0.9, -0.69), False),
        ((-0.9, -0.9), False),
        ((NAN, -0.9), False),
        ((0.9, NAN), False),
    ],
)
def test_opposite_responses_are_a_finding(responses: tuple[float, float], is_found: bool) -> None:
    assert bool(judged("DK408", sources(replace(DRIVEN, responses=responses)))) == is_found


def test_each_response_is_said_of_its_own_source() -> None:
    (finding,) = judged("DK408", sources(replace(DRIVEN, responses=(-0.8, 0.9))))
    assert "moves along with the action in `cell` (correlation 0.90), and against it in `bench` (-0.80)" in str(
        finding.message
    )
    assert finding.evidence["correlation"] == [0.9, -0.8]


def test_of_three_sources_the_one_that_differs_from_the_others_is_named() -> None:
    pairs = (replace(MIRRORED, one=0, other=1, shares=(0.9, 0.1)), replace(MIRRORED, one=0, other=2, shares=(0.9, 0.1)))
    (finding,) = judged("DK408", sources(*pairs))
    assert "of source `bench` is mirrored against that of `cell`: it is 1 in 90% of the frames of `bench`" in str(
        finding.message
    )


def test_each_mirrored_dimension_is_a_finding() -> None:
    assert len(judged("DK408", sources(MIRRORED, DRIVEN))) == 2


# Controllers

TOO_FAR = ExecutedDimension(0, 9.2, 0.0, 8.2, 9.2, 0.0)


def executed(*dimensions: ExecutedDimension) -> ExecutedPlans:
    return ExecutedPlans("action", 12, 64, dimensions, None)


def test_the_largest_departure_from_the_plan_is_named() -> None:
    (finding,) = judged("DK409", executed(replace(TOO_FAR, dimension=1, gain=2.0, last_off=1.0), TOO_FAR))
    assert "`action[0]` is the plan's in step 1, and 9.2 times the plan's in step 64" in finding.message
    assert finding.evidence["dimensions"] == [1, 0]


@pytest.mark.parametrize(
    ("change", "is_found"),
    [
        ({"first_off": 0.001}, True),
        ({"first_off": 0.002}, False),  # other units, a limit, a filter
        ({"last_off": 0.06}, True),
        ({"last_off": 0.05}, False),
        ({"still_moves": 0.01}, True),
        ({"still_moves": 0.02}, False),  # it does not settle
        ({"last_size": 0.0}, False),  # it stops
    ],
)
def test_a_plan_is_left_where_the_controller_settles_on_something_else(change: dict[str, Any], is_found: bool) -> None:
    assert bool(judged("DK409", executed(replace(TOO_FAR, **change)))) == is_found


def test_what_is_no_multiple_of_the_plan_is_given_by_its_distance() -> None:
    (finding,) = judged("DK409", executed(replace(TOO_FAR, gain=1.0, last_off=0.3)))
    assert "one that is off by 30% of its size in step 64" in finding.message

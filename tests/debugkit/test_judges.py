"""The core rules' judges as pure functions: silent below their threshold, loud above it, whatever the numbers."""

from __future__ import annotations

import math

from hypothesis import assume, given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding, Severity
from debugkit.rule import Context, find_rule
from debugkit.rules.dk002_silent_broadcast import Comparison, LossOperands
from debugkit.rules.dk101_parameter_not_in_optimizer import ForgottenParameter, OptimizerCoverage
from debugkit.rules.dk112_frozen_parameter_changed import FrozenChange, FrozenTensors
from debugkit.rules.dk305_batch_leak import BatchIndependence, RowSource
from debugkit.rules.dk401_normaliser_round_trip import NormaliserRoundTrips, RoundTrip

shapes = st.lists(st.integers(1, 7), max_size=4).map(tuple)


def judged(code: str, seen: object, declare: Declare | None = None) -> list[Finding]:
    rule = find_rule(code)
    return list(rule.judge(seen, *(None for _ in rule.uses), Context(rule, declare or Declare())))


def compared(first: tuple[int, ...], second: tuple[int, ...], outer: bool = False) -> list[Finding]:
    return judged("DK002", LossOperands((Comparison("sub", first, second, None, outer),)))


@given(shapes, st.booleans())
def test_equal_shapes_and_scalars_are_never_a_broadcast(shape: tuple[int, ...], outer: bool) -> None:
    assert compared(shape, shape, outer) == []
    assert compared(shape, (), outer) == []


@given(st.integers(2, 50), st.booleans())
def test_column_against_row_is_always_an_error(size: int, swapped: bool) -> None:
    pair = ((size,), (size, 1)) if swapped else ((size, 1), (size,))
    (finding,) = compared(*pair)
    assert finding.severity is Severity.ERROR
    assert finding.evidence["pairs"] == size * size


@given(shapes, shapes)
def test_a_finding_about_shapes_always_compares_more_pairs_than_one_side_has(first, second) -> None:
    assume(all(a == b or 1 in (a, b) for a, b in zip(reversed(first), reversed(second), strict=False)))
    for finding in compared(first, second):
        assert finding.evidence["pairs"] > min(math.prod(first), math.prod(second))


@given(st.integers(1, 9), st.integers(2, 9))
def test_repeating_on_purpose_is_silent_and_by_accident_a_warning(batch: int, steps: int) -> None:
    one, many = (batch, 1, 3), (batch, steps, 3)
    assert [finding.severity for finding in compared(one, many)] == [Severity.WARNING]
    assert compared(one, many, outer=True) == []


@given(st.floats(0, 10), st.floats(1e-5, 1), st.booleans(), st.booleans())
def test_batch_leak_is_found_exactly_above_the_floor(moved: float, floor: float, column: bool, coupled: bool) -> None:
    seen = BatchIndependence(4, "", moved, 1, column, floor, "head")
    found = judged("DK305", seen, Declare(coupled_batch=coupled))
    assert len(found) == (moved > floor)
    for finding in found:
        assert finding.severity is (Severity.INFO if column or coupled else Severity.ERROR)


@given(st.sampled_from([("", False), ("pe", False), ("token", True)]), st.booleans(), st.booleans())
def test_a_result_by_row_is_an_error_only_for_samples_in_random_order(
    kind: tuple[str, bool], drawn: bool, coupled: bool
) -> None:
    source = RowSource(0.1, *kind, drawn, "head", None)
    seen = BatchIndependence(4, "", 0.0, 0, False, 1e-5, "", source=source)
    (finding,) = judged("DK305", seen, Declare(coupled_batch=coupled))
    assert finding.severity is (Severity.ERROR if drawn and not coupled else Severity.INFO)
    assert finding.evidence["table"] == kind[0]


@given(st.lists(st.floats(0, 1) | st.just(math.nan), min_size=1, max_size=5))
def test_round_trip_names_every_dimension_beyond_tolerance_and_no_other(errors: list[float]) -> None:
    trip = RoundTrip("", "normalize", "unnormalize", None, "action", tuple(errors), 1e-5, (1.0,) * len(errors))
    wrong = [index for index, error in enumerate(errors) if not error <= 1e-5]
    found = judged("DK401", NormaliserRoundTrips((trip,)))
    assert [finding.evidence["dimensions"] for finding in found] == ([wrong] if wrong else [])


parameters = st.builds(ForgottenParameter, st.text("ab.", min_size=1), st.integers(1, 9), st.booleans())


@given(st.lists(parameters, max_size=6), st.booleans())
def test_forgotten_parameters_are_all_listed_once(forgotten: list[ForgottenParameter], all_known: bool) -> None:
    seen = OptimizerCoverage(1, 9, tuple(forgotten), ())
    found = judged("DK101", seen, Declare(all_optimizers=all_known))
    listed = [path for finding in found for path in finding.evidence["parameters"]]
    assert sorted(listed) == sorted(parameter.path for parameter in forgotten)
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    assert bool(errors) == (all_known and any(parameter.received_gradient for parameter in forgotten))


changes = st.builds(
    FrozenChange,
    path=st.sampled_from(["v.a.w", "v.b.w", "h.w"]),
    module=st.sampled_from(["v.a", "v.b", "h"]),
    kind=st.sampled_from(["parameter", "buffer"]),
    cause=st.sampled_from(["forward", "optimizer"]),
    changed=st.integers(1, 5),
    numel=st.just(5),
    largest=st.floats(0, 1),
)


@given(st.lists(changes, max_size=6))
def test_frozen_changes_are_one_finding_for_each_tower_kind_and_cause(some: list[FrozenChange]) -> None:
    found = judged("DK112", FrozenTensors(9, tuple(some)))
    groups = {(change.module.partition(".")[0], change.kind, change.cause) for change in some}
    assert len(found) == len(groups)
    assert sum(len(finding.evidence["tensors"]) for finding in found) == len(some)

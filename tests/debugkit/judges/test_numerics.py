"""The numerics judges as pure functions: each threshold from both sides, and what must never count."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debugkit.finding import Finding, NotExamined, Severity
from debugkit.loop.losses import Loss, Losses
from debugkit.loop.scaler_use import ScalerUse
from debugkit.measurements.parameter_updates import ParameterHistory, ParameterUpdates, Update
from debugkit.rule import Context, Mode, find_rule
from debugkit.rules.dk203_near_overflow import DtypePeaks, TensorPeak
from debugkit.rules.dk205_gradient_spike import GradientHistory, OptimizerNorms, TotalNorm
from debugkit.rules.dk208_mixed_precision_inactive import AutocastRegion, AutocastUse, Product
from debugkit.rules.dk209_underflow import HalfGradient, HalfGradients, HalfStep, RescaledGradient, RescaledGradients

settings.register_profile("untimed", deadline=None)  # the first example loads every rule, on whatever machine
settings.load_profile("untimed")

HALF = 65504.0
FLOAT32 = 3.4028234663852886e38


def judged(code: str, *seen: object, mode: Mode = "watch") -> list[Finding]:
    """The findings; none if the rule does not apply, for example because the run is too short."""
    rule = find_rule(code)
    try:
        return list(rule.judge(*seen, Context(rule, mode=mode)))
    except NotExamined:
        return []


# DK203


def peak(
    minimum: float, maximum: float, at_minimum: int = 1, dtype: str = "float16", limit: float = HALF
) -> TensorPeak:
    return TensorPeak("head", "output", dtype, limit, False, minimum, maximum, at_minimum)


@given(st.floats(0, 65000), st.booleans())
def test_a_computed_value_is_near_overflow_exactly_above_a_tenth_of_the_limit(value: float, negative: bool) -> None:
    seen = peak(-value, 0.0) if negative else peak(0.0, value)
    assert bool(judged("DK203", DtypePeaks((seen,)))) == (value > 0.1 * HALF)


@given(
    st.sampled_from([-math.inf, -1e4, -HALF, -HALF / 2, -3e4]),
    st.floats(-90, 90),
    st.integers(2, 99),
    st.floats(0, 6000),
)
def test_a_mask_is_silent_also_with_scores_added(fill: float, score: float, many: int, above: float) -> None:
    assert judged("DK203", DtypePeaks((peak(fill + score, above, many),))) == []


@given(st.floats(6600, HALF, exclude_max=True))
def test_a_mask_does_not_hide_what_is_too_large_beside_it(value: float) -> None:
    assert judged("DK203", DtypePeaks((peak(-math.inf, value, 9),)))


@given(st.sampled_from([math.nan, math.inf]))
def test_what_is_not_finite_is_left_to_the_rule_that_names_its_origin(value: float) -> None:
    assert judged("DK203", DtypePeaks((peak(value, value),))) == []


@given(st.lists(st.floats(1, 65000), min_size=1, max_size=5))
def test_the_first_of_several_is_named(values: list[float]) -> None:
    peaks = tuple(
        TensorPeak(f"layers.{i}", "output", "float16", HALF, False, 0.0, value, 1) for i, value in enumerate(values)
    )
    expected = [f"layers.{i}" for i, value in enumerate(values) if value > 0.1 * HALF][:1]
    assert [finding.location.module for finding in judged("DK203", DtypePeaks(peaks))] == expected


def test_float32_has_its_own_limit() -> None:
    assert judged("DK203", DtypePeaks((peak(0.0, 1e30, dtype="float32", limit=FLOAT32),))) == []
    assert judged("DK203", DtypePeaks((peak(0.0, 1e38, dtype="float32", limit=FLOAT32),)))


# DK204 and DK206


def history(
    updates: list[Update], *, shape: tuple[int, ...] = (8, 8), path: str = "w", dtype: str = "bfloat16", **known: object
) -> ParameterHistory:
    facts = {"zero_at_start": False, "embedding": False, "steps": 30, "largest_ratio": 1.0} | known
    rate = max((update.learning_rate for update in updates), default=0.0)
    return ParameterHistory(
        path=path,
        optimizer="AdamW (optimizer 0)",
        shape=shape,
        dtype=dtype,
        largest_learning_rate=float(facts.pop("largest_learning_rate", rate)),  # type: ignore[arg-type]
        last=tuple(updates),
        **facts,  # type: ignore[arg-type]
    )


def update(ratio: float = 1e-3, *, lost: float | None = None, rising: bool = False, rate: float = 1e-4) -> Update:
    return Update(step=9, learning_rate=rate, rising=rising, change=ratio, weight=1.0, lost=lost)


shares = st.lists(st.floats(0, 1), min_size=3, max_size=5)


@given(shares)
def test_an_update_is_lost_when_each_of_three_steps_loses_nine_tenths(lost: list[float]) -> None:
    seen = ParameterUpdates((history([update(lost=share) for share in lost]),))
    assert bool(judged("DK204", seen)) == (min(lost[-3:]) > 0.9)
    assert bool(judged("DK204", seen, mode="check")) == (lost[-1] > 0.9)


@given(st.lists(st.booleans(), min_size=3, max_size=3))
def test_nothing_is_said_while_the_learning_rate_rises(rising: list[bool]) -> None:
    seen = ParameterUpdates((history([update(lost=1.0, rising=up) for up in rising]),))
    assert bool(judged("DK204", seen)) == (not any(rising))


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_the_lost_share_is_weighted_by_size(still: int, moving: int) -> None:
    seen = ParameterUpdates(
        (
            history([update(lost=1.0)] * 3, shape=(still,), path="still"),
            history([update(lost=0.0)] * 3, shape=(moving,), path="moving"),
        )
    )
    found = judged("DK204", seen)
    assert bool(found) == (still / (still + moving) > 0.9)
    assert all(finding.location.parameter == "still" for finding in found)


def test_weights_whose_optimizer_is_not_known_or_that_are_float32_are_not_lost() -> None:
    assert judged("DK204", ParameterUpdates((history([update(lost=None)] * 5),))) == []
    assert judged("DK204", ParameterUpdates(())) == []


ratios = st.floats(1e-12, 10)


@given(st.lists(ratios, min_size=5, max_size=5))
def test_updates_are_too_large_only_five_times_in_a_row(some: list[float]) -> None:
    found = judged("DK206", ParameterUpdates((history([update(ratio) for ratio in some]),)), None)
    assert bool(found) == (min(some) > 0.1)


@given(ratios, st.integers(0, 5), st.integers(0, 5))
def test_updates_are_too_small_only_if_most_matrices_always_were(largest: float, tiny: int, usual: int) -> None:
    small = [history([update(1e-9)] * 5, path=f"tiny.{i}", largest_ratio=largest) for i in range(tiny)]
    other = [history([update(1e-3)] * 5, path=f"usual.{i}") for i in range(usual)]
    found = judged("DK206", ParameterUpdates((*small, *other)), None)
    assert bool(found) == (largest < 1e-6 and tiny > usual)  # ten times that of other optimizers: these are AdamW's


@given(
    st.sampled_from(
        [
            {"zero_at_start": True},
            {"embedding": True},
            {"steps": 24},
            {"shape": (64,)},
            {"shape": (3, 5)},
            {"dtype": "float32", "largest_learning_rate": 1.0, "largest_ratio": 1e-9},
        ]
    ),
    st.floats(1e-12, 1e-8),
)
def test_what_has_a_healthy_reason_is_left_alone(known: dict[str, object], ratio: float) -> None:
    seen = ParameterUpdates((history([update(ratio)] * 5, **known),))  # type: ignore[arg-type]
    assert judged("DK206", seen, None) == []


def test_steps_at_a_learning_rate_of_zero_are_ignored() -> None:
    seen = ParameterUpdates((history([update(0.0, rate=0.0)] * 5, largest_ratio=0.0),))
    assert judged("DK206", seen, None) == []


def course(values: list[float]) -> Losses:
    each = tuple(Loss(step, value) for step, value in enumerate(values))
    return Losses(each[:8], each)


@pytest.mark.parametrize(
    ("ratios_at_first", "values", "found"),
    [
        ([0.3] * 5, [1.0, 4.0, *[1.2] * 12], True),
        ([0.3] * 5, [1.0, 4.0, *[0.5] * 12], False),  # it came back, and the weights were not replaced at once
        ([0.8] * 5, [1.0, 4.0, *[0.5] * 12], True),
        ([0.8] * 5, [1.0, 1.1, *[0.5] * 12], False),
        ([0.3] * 5, [1.0, 2.0, math.inf], True),
        ([0.01] * 5, [1.0, 4.0, *[1.2] * 12], False),
        ([0.3] * 5, [-1.0, 4.0, *[1.2] * 12], False),
    ],
)
def test_large_first_updates_are_a_fault_if_the_loss_is_lost(
    ratios_at_first: list[float], values: list[float], found: bool
) -> None:
    first = tuple(update(ratio) for ratio in ratios_at_first)
    seen = ParameterUpdates((history([update()] * 5, steps=14, first=first),))
    assert bool(judged("DK206", seen, course(values))) == found


@pytest.mark.parametrize(("rate", "change", "found"), [(1e-6, 1e-7, True), (1e-6, 1e-5, False), (1e-3, 1e-7, False)])
def test_sgd_is_too_slow_if_its_updates_promise_nothing(rate: float, change: float, found: bool) -> None:
    each = dataclasses.replace(update(rate=rate), change=change)
    known = history([each] * 5, steps=30, largest_ratio=5e-6, largest_learning_rate=rate)
    seen = ParameterUpdates((dataclasses.replace(known, optimizer="SGD (optimizer 0)"),))
    assert bool(judged("DK206", seen, course([1.0] * 30))) == found


# DK205


def spikes(norms: list[float], first: list[float] | None = None) -> list[Finding]:
    totals = tuple(TotalNorm(step, norm, "head.weight", norm) for step, norm in enumerate(norms))
    return judged("DK205", GradientHistory((OptimizerNorms("AdamW (optimizer 0)", tuple(first or norms[:8]), totals),)))


usual = st.lists(st.floats(0.5, 2.0), min_size=20, max_size=64)


@given(usual, st.floats(1e-6, 4.0))
def test_a_norm_below_ten_times_the_median_is_never_a_spike(norms: list[float], newest: float) -> None:
    assert spikes([*norms, newest]) == []


@given(st.integers(20, 64), st.floats(3.1, 9.9))
def test_a_quiet_run_does_not_make_a_ripple_a_spike(steps: int, newest: float) -> None:
    assert spikes([*[1.0] * steps, newest]) == []


@given(usual, st.floats(1e3, 1e30))
def test_a_thousand_times_the_usual_norm_is_a_spike(norms: list[float], newest: float) -> None:
    (finding,) = spikes([*norms, newest])
    assert finding.evidence["z"] > finding.evidence["threshold"]  # type: ignore[operator]
    assert finding.location.step == len(norms)


@given(usual, st.floats(1e3, 1e6))
def test_a_size_that_came_before_or_at_the_start_is_no_spike(norms: list[float], size: float) -> None:
    assert spikes([*norms[:10], size, *norms[10:], size]) == []
    assert spikes([*norms, size], first=[size, *norms[:7]]) == []


@given(st.lists(st.floats(0.5, 2.0), max_size=19), st.floats(1e3, 1e6))
def test_the_first_steps_are_not_judged(norms: list[float], newest: float) -> None:
    assert spikes([*norms, newest]) == []


@given(usual, st.floats(1e3, 1e6), st.floats(1e-6, 1e6))
def test_a_spike_is_one_in_any_unit(norms: list[float], newest: float, unit: float) -> None:
    assert spikes([*(norm * unit for norm in norms), newest * unit])


# DK207


def losses(values: list[float]) -> list[Finding]:
    seen = tuple(Loss(step, value) for step, value in enumerate(values))
    return judged("DK207", Losses(seen[:8], seen[-256:]))


@given(st.lists(st.floats(0.01, 49.0), min_size=1, max_size=60))
def test_a_loss_within_fifty_times_its_start_has_not_diverged(rest: list[float]) -> None:
    assert losses([1.0, *rest]) == []


@given(st.integers(0, 6), st.integers(0, 20))
def test_a_loss_has_diverged_once_three_steps_in_a_row_are_far_above_the_start(row: int, healthy: int) -> None:
    found = losses([1.0] * (healthy + 1) + [51.0] * row)
    assert [finding.severity for finding in found] == [Severity.WARNING] * (row >= 3)
    assert all(finding.location.step == healthy + 1 for finding in found)


@given(st.integers(1, 20), st.integers(3, 9))
def test_a_run_that_came_back_has_not_diverged(healthy: int, row: int) -> None:
    assert losses([1.0] * healthy + [500.0] * row + [1.0]) == []


@given(st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(0, 6))
def test_three_losses_that_are_not_finite_are_proof(value: float, row: int) -> None:
    found = losses([1.0, 1.0] + [value] * row)
    assert [finding.severity for finding in found] == [Severity.ERROR] * (row >= 3)


@given(st.floats(-10, -1e-6), st.floats(1e3, 1e6))
def test_a_loss_that_changes_its_sign_has_no_scale(negative: float, large: float) -> None:
    assert losses([1.0, negative, large, large, large]) == []


def test_of_several_losses_in_a_step_the_smallest_counts() -> None:
    seen = tuple(Loss(step, value) for step in range(5) for value in (1.0, 1.0 if step < 2 else 1e4))
    assert judged("DK207", Losses(seen[:8], seen)) == []


# DK208


def work(wide: int, narrow: int, regions: int = 1) -> list[Finding]:
    products = (Product("a", "cpu", "float32", False, wide), Product("b", "cpu", "bfloat16", True, narrow))
    region = AutocastRegion("cpu", "bfloat16", None)
    return judged("DK208", AutocastUse((region,) * regions, products), None)


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_mixed_precision_is_inactive_when_more_than_half_the_work_is_wide(wide: int, narrow: int) -> None:
    assert bool(work(wide, narrow)) == (wide > narrow)
    assert work(wide, narrow, regions=0) == []


@given(st.integers(0, 300), st.floats(0, 1))
def test_a_scaler_skips_too_often_above_a_quarter_of_a_hundred_steps(asked: int, share: float) -> None:
    skipped = round(asked * share)
    found = judged("DK208", AutocastUse((), ()), ScalerUse(asked, skipped, None))
    expected = (asked >= 100 and skipped > 0.25 * asked) or (asked >= 32 and skipped == asked)
    assert bool(found) == expected
    assert all((finding.severity is Severity.ERROR) == (skipped == asked) for finding in found)


# DK209


def half_step(*counts: tuple[int, int], zero_loss: bool = False) -> HalfStep:
    gradients = tuple(HalfGradient(f"m{i}", None, 1000, *count) for i, count in enumerate(counts))
    return HalfStep(4, zero_loss, gradients)


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=3))
def test_underflow_is_found_when_three_steps_have_three_tenths_of_their_values_subnormal(counts: list[int]) -> None:
    seen = HalfGradients(1, tuple(half_step((1000, subnormal)) for subnormal in counts))
    assert bool(judged("DK209", seen, None)) == (min(counts) > 300)


@given(st.integers(1, 5), st.integers(0, 5))
def test_a_minority_of_gradients_does_not_decide(healthy: int, tiny: int) -> None:
    step = half_step(*[(1000, 0)] * healthy, *[(1000, 1000)] * tiny)
    assert bool(judged("DK209", HalfGradients(1, (step,) * 3), None)) == (tiny >= healthy)


@given(st.booleans())
def test_all_zero_is_underflow_unless_the_loss_is_zero(zero_loss: bool) -> None:
    seen = HalfGradients(1, (half_step((0, 0), (0, 0), zero_loss=zero_loss),) * 3)
    assert bool(judged("DK209", seen, None)) == (not zero_loss)


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_value_that_a_scale_would_have_kept_counts_whether_zero_or_subnormal(zero: int, subnormal: int) -> None:
    rescaled = RescaledGradients(128.0, (RescaledGradient("w", 1000, zero, subnormal),))
    found = judged("DK209", HalfGradients(1, ()), rescaled, mode="check")
    assert bool(found) == (zero + subnormal > 300)

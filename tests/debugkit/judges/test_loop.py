"""The judges of the loop rules as pure functions: orders of events, and numbers at their thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding, NotExamined, Severity, SourceLine
from debugkit.loop.optimizer_events import EventKind, GradientUse, LoopEvent, OptimizerEvents
from debugkit.loop.training_modes import ModeAtStep, TrainingModes
from debugkit.measurements.short_training import LearningRates, LearningRateTrial, OneBatchTraining, RateTrial
from debugkit.rule import Context, Mode, find_rule
from debugkit.rules.dk506_random_in_eval import EvalDropout, RandomnessInEval
from debugkit.rules.dk507_accumulation_scale import AccumulatedGradient, AccumulatedStep, AccumulatedSteps
from debugkit.rules.dk510_validation_in_training_mode import PassesInTrainingMode, PassesWithoutGradients
from debugkit.rules.dk511_optimizer_recreated import HalfRestored, ReplacedOptimizers, Replacement
from debugkit.rules.dk512_gradients_discarded import Period, Periods
from debugkit.rules.dk513_kept_weights_not_copied import (
    AverageRate,
    AverageRates,
    KeptWeights,
    OwnWeightsLoaded,
    SelfAverage,
    SelfAverages,
)
from debugkit.rules.dk605_hooks_accumulate import HookCounts, RisingHooks

LETTERS: dict[str, EventKind] = {
    "b": "backward",
    "z": "zero_grad",
    "c": "clip",
    "u": "scaler_unscale",
    "S": "scaler_step",
    "l": "scheduler_step",
    "s": "step",
}


def judged(code: str, *seen: object, declare: Declare | None = None, mode: Mode = "watch") -> list[Finding]:
    """The findings; none if the run is too short, or had no gradient."""
    rule = find_rule(code)
    try:
        return list(rule.judge(*seen, Context(rule, declare or Declare(), mode)))
    except NotExamined as limit:
        if "too short" in str(limit) or "No `backward()` has added" in str(limit):
            return []
        raise


def events(cycles: Sequence[str], **clip: object) -> OptimizerEvents:
    """A run of one optimizer, a letter for each event."""
    found: list[LoopEvent] = []
    uses: list[GradientUse] = []
    arrived = steps = 0
    for letter in "".join(cycles):
        kind = LETTERS[letter]
        numbers = () if kind == "backward" else (0,)
        more = {"clipped": 4, "clippable": 4, "passed": 4, "limit": 1.0, **clip} if kind == "clip" else {}
        line = SourceLine("train.py", 1 + "bzcuSls".index(letter))
        found.append(LoopEvent(kind, len(found), numbers, steps, line, **more))  # type: ignore[arg-type]
        arrived += letter == "b"
        if letter == "s":
            uses.append(GradientUse(0, steps, arrived, True, line, unchanged=arrived == 0))
            steps, arrived = steps + 1, 0
    backwards = sum(event.kind == "backward" for event in found)
    return OptimizerEvents(("AdamW",), (steps,), backwards, 0, tuple(found), tuple(uses), (steps > 0,), (None,))


@pytest.mark.parametrize("cycle", ["zbs", "bsz", "zbbbs", "zbcs", "zbuSs", "zbucSs", "bslz", "zbcbcs", "bszl"])
@pytest.mark.parametrize("code", ["DK502", "DK503", "DK504"])
def test_healthy_orders_are_silent_however_often_they_come(cycle: str, code: str) -> None:
    assert judged(code, events([cycle] * 12)) == []


@pytest.mark.parametrize(
    ("code", "cycle", "line"),
    [
        ("DK502", "bzs", 2),
        ("DK502", "s", 7),
        ("DK503", "blblbls", 6),
        ("DK503", "lbs", 6),
        ("DK504", "zcbs", 3),
        ("DK504", "zbsc", 3),
        ("DK504", "zbcSs", 3),
        ("DK504", "zbcuSs", 3),
        ("DK504", "zbcbs", 3),
    ],
)
def test_wrong_orders_are_found_at_their_line(code: str, cycle: str, line: int) -> None:
    (finding,) = judged(code, events([cycle] * 6))
    assert finding.location.line == line


@pytest.mark.parametrize(("code", "cycle"), [("DK502", "bzs"), ("DK503", "blbls"), ("DK504", "zcbs")])
@given(times=st.integers(0, 8))
def test_two_wrong_steps_are_an_accident_and_three_a_fault(code: str, cycle: str, times: int) -> None:
    assert bool(judged(code, events([cycle] * times))) == (times >= 3)


@given(st.integers(0, 30))
def test_an_optimizer_that_never_steps_is_found_from_eight_backwards_on(backwards: int) -> None:
    assert bool(judged("DK502", events(["zb"] * backwards))) == (backwards >= 8)


@given(st.lists(st.sampled_from("bzcuSls"), max_size=60))
def test_any_order_of_events_is_judged_without_an_error(letters: list[str]) -> None:
    for code in ("DK501", "DK502", "DK503", "DK504"):
        judged(code, events(letters))


@pytest.mark.parametrize("limit", [math.inf])
def test_a_clip_that_only_measures_is_no_clip(limit: float) -> None:
    assert judged("DK504", events(["zcbs"] * 9, limit=limit)) == []


@given(st.booleans(), st.integers(0, 12), st.integers(0, 3), st.integers(0, 3))
def test_eval_mode_is_found_after_three_steps_or_five_from_the_start(
    flips: bool, lasted: int, sensitive: int, in_eval: int
) -> None:
    in_eval = min(in_eval, sensitive)
    start = 4 if flips else 0
    trained = (ModeAtStep(0, True, sensitive, 0, None),) if flips else ()
    seen = TrainingModes(
        start + lasted, (*trained, ModeAtStep(start, False, sensitive, in_eval, None)), start + lasted - 1
    )
    found = judged("DK505", seen)
    assert bool(found) == (in_eval > 0 and lasted >= (3 if flips else 5))
    assert all(finding.severity is (Severity.ERROR if flips else Severity.WARNING) for finding in found)


@given(st.lists(st.booleans(), max_size=4), st.integers(0, 9))
def test_each_dropout_in_eval_is_found_and_no_other_draw(elementwise: list[bool], other_draws: int) -> None:
    drops = tuple(EvalDropout("dropout", f"layers.{i}", None, 0.1, each) for i, each in enumerate(elementwise))
    severities = [finding.severity for finding in judged("DK506", RandomnessInEval(drops, other_draws))]
    assert severities == [Severity.ERROR if each else Severity.WARNING for each in elementwise]


@given(st.floats(0, 1e-3), st.floats(1e-9, 1e-3), st.booleans())
def test_accumulation_is_found_exactly_above_the_floor(difference: float, floor: float, coupled: bool) -> None:
    seen = AccumulatedGradient(4, 0.9, 1.0, difference, floor, True, "head.weight")
    if coupled:
        with pytest.raises(NotExamined):
            judged("DK507", seen, None, declare=Declare(coupled_batch=True), mode="check")
    else:
        assert bool(judged("DK507", seen, None, mode="check")) == (difference > floor)


@pytest.mark.parametrize(
    ("changes", "factors", "found"),
    [
        ({}, (1, 1, 1), True),
        ({"calls": 1}, (1, 1, 1), False),
        ({"means": False}, (1, 1, 1), False),
        ({}, (1, 1), False),
        ({}, (0.25, 0.25, 0.25), False),
        ({}, (0.5, 0.3, 1), True),
        ({}, (0.2, 0.15, 0.19), True),
        ({}, (1, math.nan, 1), False),
        ({}, (1024, 1024, 1024), False),
    ],
)
@pytest.mark.parametrize("scale_free", [False, True])
def test_sums_of_means(changes: dict[str, Any], factors: tuple[float, ...], found: bool, scale_free: bool) -> None:
    step = replace(AccumulatedStep(4, True, 1.0, SourceLine("train.py", 9)), **changes)
    seen = AccumulatedSteps(tuple(replace(step, factor=factor) for factor in factors), scale_free=scale_free)
    findings = judged("DK507", None, seen)
    assert bool(findings) == (found and not (scale_free and min(factors) == 1))
    assert all(finding.severity is Severity.INFO and finding.location.line == 9 for finding in findings)


def test_sums_of_means_in_steps_of_different_length_are_not_told() -> None:
    steps = tuple(AccumulatedStep(calls, True, 1.0) for calls in (4, 4, 4, 3))
    assert judged("DK507", None, AccumulatedSteps(steps)) == []


@given(st.floats(0.01, 10), st.floats(0, 2))
def test_a_curve_that_falls_below_half_is_never_called_stuck(first: float, share: float) -> None:
    seen = OneBatchTraining(2, 1e-3, (first, *[share * first] * 9))
    assert bool(judged("DK508", seen)) == (share * first > 0.5 * first)


@pytest.mark.parametrize("last", [math.nan, math.inf])
def test_a_curve_that_is_not_finite_is_another_rules_matter(last: float) -> None:
    assert judged("DK508", OneBatchTraining(2, 1e-3, (1.0, 1.0, last))) == []


@pytest.mark.parametrize(
    ("own", "factor", "other", "found"),
    [
        ((1.0, 11.0), 1e-2, (1.0, 0.99), True),
        ((1.0, math.nan), 1e-2, (1.0, 0.99), True),
        ((1.0, 9.0), 1e-2, (1.0, 0.5), False),  # it rises, as Adam's first steps may
        ((1.0, 11.0), 1e-2, (1.0, 1.5), False),  # the rate is not what does it
        ((1.0, 1.0), 1e6, (1.0, 0.9), True),
        ((1.0, 1.0), 1e6, (1.0, 1.0), False),
        ((1.0, 0.9999), 1e6, (1.0, 0.5), False),
    ],
)
def test_a_rate_is_blamed_only_where_another_one_does_better(
    own: tuple[float, ...], factor: float, other: tuple[float, ...], found: bool
) -> None:
    trial = LearningRateTrial(RateTrial(1.0, own), RateTrial(factor, other))
    assert bool(judged("DK509", LearningRates((0.1,), False), trial)) == found


def test_a_rate_that_was_not_tried_is_said_so() -> None:
    with pytest.raises(NotExamined, match="no training step was tried"):
        judged("DK509", LearningRates((0.1,), False), None)


@given(st.booleans())
def test_a_rate_of_zero_is_found_unless_a_schedule_raises_it(scheduled: bool) -> None:
    assert bool(judged("DK509", LearningRates((0.0, 0.0), scheduled), None)) != scheduled


@given(st.integers(0, 4), st.lists(st.sampled_from("ab"), unique=True), st.integers(1, 3))
def test_dropout_alone_is_told_and_changed_statistics_are_warned_of(passes: int, updated: list[str], drop: int) -> None:
    first = PassesInTrainingMode(5, passes, tuple(updated), drop)
    found = judged("DK510", PassesWithoutGradients(9, 3, False, 1, first))
    severity = Severity.WARNING if updated else Severity.INFO
    assert [(finding.severity, finding.location.step) for finding in found] == [(severity, 5)] * (passes > 1)


def test_passes_before_the_first_step_may_collect_data() -> None:
    with pytest.raises(NotExamined, match="collects data"):
        judged("DK510", PassesWithoutGradients(9, 3, True, 0))


REPLACED = Replacement(0, "Adam", 6, False, True, True, 1.0, 1, True, True, SourceLine("train.py", 3))


def test_two_replacements_in_a_row_that_change_nothing_else_are_a_finding() -> None:
    (finding,) = judged("DK511", ReplacedOptimizers(3, (REPLACED, REPLACED)))
    assert finding.location.line == 3
    assert not judged("DK511", ReplacedOptimizers(2, (REPLACED,)))
    assert not judged("DK511", ReplacedOptimizers(4, (REPLACED, replace(REPLACED, chain=1))))


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 1},
        {"same_settings": False},
        {"unchanged": False},
        {"rate_ratio": 2.0},
        {"epochs": 2},
        {"same_data": False},
    ],
)
def test_a_replacement_that_changes_more_interrupts_the_row(change: dict[str, Any]) -> None:
    other = replace(REPLACED, **change)
    assert not judged("DK511", ReplacedOptimizers(4, (REPLACED, other, REPLACED)))
    assert judged("DK511", ReplacedOptimizers(5, (other, REPLACED, REPLACED)))


def test_one_replacement_is_enough_at_the_end_of_a_run_if_one_line_made_both() -> None:
    def found(*replacements: Replacement, ended: bool = True, optimizers: int = 2) -> bool:
        rule, seen = find_rule("DK511"), ReplacedOptimizers(optimizers, replacements)
        return bool(list(rule.judge(seen, Context(rule, mode="watch", ended=ended))))

    assert found(REPLACED)
    assert not found(REPLACED, optimizers=3)
    assert not found(REPLACED, ended=False)
    assert not found(replace(REPLACED, same_line=False))
    assert not found(REPLACED, replace(REPLACED, unchanged=False))
    assert not found(REPLACED, replace(REPLACED, epochs=2), REPLACED)


HALF = HalfRestored("Adam", 20, True, False, SourceLine("train.py", 5))


def test_an_optimizer_beside_loaded_weights_that_lacks_the_saved_state_is_a_finding() -> None:
    (finding,) = judged("DK511", ReplacedOptimizers(2, (), (HALF,)))
    assert finding.location.line == 5
    for change in ({"steps": 1}, {"same_settings": False}, {"other_data": True}):
        assert not judged("DK511", ReplacedOptimizers(2, (), (replace(HALF, **change),)))


PERIOD = Period(1, "Adam", 6, 5, "last", True, True, SourceLine("train.py", 9))


def periods(*numbers: int, steps: int, **change: Any) -> Periods:
    return Periods(steps, tuple(replace(PERIOD, step=number, **change) for number in numbers))


def test_periods_in_a_row_are_a_finding_unless_most_steps_are_of_another_kind() -> None:
    (finding,) = judged("DK512", periods(1, 2, steps=4))
    assert finding.location.line == 9
    assert not judged("DK512", periods(1, 2, steps=5))
    assert not judged("DK512", periods(1, 3, steps=3))


def test_one_discarded_gradient_counts_only_if_the_losses_were_divided() -> None:
    eight = range(1, 9)
    assert judged("DK512", periods(*eight, steps=8, backwards=2, discarded=1, divided=True))
    assert not judged("DK512", periods(*eight, steps=8, backwards=2, discarded=1))
    assert not judged("DK512", periods(*eight[:7], steps=7, backwards=2, discarded=1, divided=True))


@pytest.mark.parametrize("change", [{"discarded": 2}, {"used": "other"}, {"one_place": False}, {"unchanged": False}])
def test_a_period_with_another_purpose_is_not_counted(change: dict[str, Any]) -> None:
    assert not judged("DK512", periods(1, 2, steps=2, **change))


@pytest.mark.parametrize(
    ("ended", "backwards", "rest", "is_found"),
    [(True, 8, None, True), (False, 8, None, False), (True, 7, None, False), (True, 6, PERIOD, True)],
)
def test_one_period_is_enough_at_the_end_of_a_run(
    ended: bool, backwards: int, rest: Period | None, is_found: bool
) -> None:
    rule = find_rule("DK512")
    seen = Periods(1, (replace(PERIOD, backwards=backwards),), rest)
    assert bool(list(rule.judge(seen, Context(rule, mode="watch", ended=ended)))) == is_found


def test_own_weights_that_were_loaded_are_named_with_what_changed_them() -> None:
    kept, loaded = SourceLine("train.py", 20, "train"), SourceLine("train.py", 30, "train")
    after_steps = OwnWeightsLoaded("Policy", 4, steps=1, loads=0, kept_at=kept, loaded_at=loaded)
    after_both = replace(after_steps, steps=3, loads=2, kept_at=None)
    first, second = judged("DK513", KeptWeights(2, (after_steps, after_both)), None, None)
    assert "(1 optimizer step)" in first.message
    assert first.location.line == 20
    assert "(3 optimizer steps and 2 loads)" in second.message
    assert second.location.line == 30  # better than none
    assert not judged("DK513", KeptWeights(1, ()), None, None)
    with pytest.raises(NotExamined):
        judged("DK513", KeptWeights(0, ()), None, None)


@pytest.mark.parametrize(("trained", "says"), [(True, "no copy of them"), (False, "no trained weights enter")])
def test_an_average_of_itself_needs_two_steps(trained: bool, says: str) -> None:
    average = SelfAverage(4, 2, trained, SourceLine("train.py", 8, "update"))
    (finding,) = judged("DK513", KeptWeights(0, ()), SelfAverages(1, (average,)), None)
    assert says in finding.message
    assert finding.location.line == 8
    assert not judged("DK513", KeptWeights(0, ()), SelfAverages(1, (replace(average, steps=1),)), None)


def test_an_average_that_is_almost_replaced_needs_ten_steps_and_two_tensors() -> None:
    average = AverageRate(0.995, 2, 10, SourceLine("train.py", 8, "update"))
    (finding,) = judged("DK513", KeptWeights(0, ()), None, AverageRates((average,), True))
    assert "a coefficient of 0.995, in each of 10 steps" in finding.message
    assert "0.005 for the trained weights" in finding.fix
    assert finding.location.line == 8
    few = AverageRates((replace(average, steps=9), replace(average, tensors=1)), True)
    assert not judged("DK513", KeptWeights(0, ()), None, few)
    assert not judged("DK513", KeptWeights(0, ()), None, AverageRates((average,), False))


def test_hooks_whose_number_rises_in_each_step_are_one_finding_for_each_hook() -> None:
    tower = RisingHooks("tower", False, "forward hook", "keep", 6, 4, SourceLine("train.py", 3))
    weight = RisingHooks("head.weight", True, "backward hook", "clip", 6, 5, SourceLine("train.py", 9))
    first, second = judged("DK605", HookCounts(7, (tower, replace(tower, owner="head"), weight)))
    assert "`tower` has 6 forward hooks with this code after 7 steps, and so has 1 other." in first.message
    assert (first.location.module, first.location.line) == ("tower", 3)
    assert (second.location.parameter, second.location.line) == ("head.weight", 9)
    assert not judged("DK605", HookCounts(7, (replace(tower, rises=3),)))
    assert not judged("DK605", HookCounts(4, (tower,)))

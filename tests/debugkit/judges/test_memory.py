"""The judges of DK6xx as pure functions: what counts as growth, and what as noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding, NotExamined, Severity, SourceLine
from debugkit.measurements.memory_profile import MemoryProfile, ModuleBytes, Peak
from debugkit.rule import Context, find_rule
from debugkit.rules.dk601_retained_graph import Holder, RetainedGraphs
from debugkit.rules.dk602_memory_slope import MemorySamples, theil_sen, trend_by_chance
from debugkit.rules.dk603_graph_in_validation import EvaluationGraphs, UntrainedForwards
from debugkit.rules.dk604_memory_budget import MemoryDemand

KIB, MIB = 2**10, 2**20


def judged(code: str, seen: object) -> list[Finding]:
    """The findings; none if the rule does not apply, for example because the run is too short."""
    rule = find_rule(code)
    try:
        return list(rule.judge(seen, Context(rule, Declare(), "watch")))
    except NotExamined:
        return []


def memory(values: Sequence[float], every: int = 1) -> list[Finding]:
    return judged("DK602", MemorySamples("host", every, tuple(int(value) for value in values)))


@given(st.integers(5, 60))
def test_graphs_that_stay_after_every_step_are_found(steps: int) -> None:
    assert judged("DK601", RetainedGraphs(tuple(range(steps + 1))))


@given(st.lists(st.integers(0, 3), max_size=60))
def test_a_few_kept_graphs_are_not(alive: list[int]) -> None:
    seen = RetainedGraphs(tuple(alive))
    assert bool(judged("DK601", seen)) == (seen.rises >= 5 and seen.falls == 0)


def test_graphs_that_are_let_go_again_are_not() -> None:
    assert judged("DK601", RetainedGraphs((0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6))) == []


@given(st.integers(0, 40))
def test_gradients_with_a_graph_are_found_in_the_fifth_step(steps: int) -> None:
    seen = RetainedGraphs((0,) * 40, gradients=steps, backward_at=SourceLine("train.py", 9))
    found = judged("DK601", seen)
    assert bool(found) == (steps >= 5)
    assert all(finding.location.line == 9 and "create_graph=True" in finding.message for finding in found)


def test_one_growth_after_another_pause_still_counts() -> None:
    holder = Holder("total", "tensor", None, 209)
    (finding,) = judged("DK601", RetainedGraphs((0, 1, 1, 2, 2, 3, 3, 4, 4, 5), holder))
    assert "`total`, a tensor" in finding.message
    assert finding.evidence["graph_nodes"] == 209


@given(st.integers(32, 128), st.integers(128, 4096), st.integers(1, 8))
def test_a_steady_leak_is_found_and_its_slope_is_exact(count: int, kib: int, every: int) -> None:
    (finding,) = memory([100 * MIB + step * every * kib * KIB for step in range(count)], every)
    assert math.isclose(finding.evidence["bytes_a_step"], kib * KIB)  # type: ignore[arg-type]


@given(st.integers(32, 128), st.integers(1, 64))
def test_constant_memory_is_not_a_leak(count: int, mib: int) -> None:
    assert memory([mib * MIB] * count) == []


def short_run(rises: Sequence[int], weights: int, garbage: int = 0) -> list[Finding]:
    """The findings of a run that has ended. Its first quarter does not count."""
    counts = [100 * MIB] * (len(rises) // 3 + 1)
    for rise in rises:
        counts.append(counts[-1] + rise)
    rule = find_rule("DK602")
    context = Context(rule, Declare(), "watch", ended=True)
    return list(rule.judge(MemorySamples("host", 1, tuple(counts), weights, garbage), context))


@given(st.lists(st.integers(10 * KIB, 12 * KIB), min_size=8, max_size=18), st.integers(1, 40))
def test_a_short_run_that_keeps_its_weights_in_every_step_is_found(rises: list[int], weights_kib: int) -> None:
    assert bool(short_run(rises, weights_kib * KIB)) == (
        weights_kib >= 8 and 0.8 * weights_kib * KIB <= sorted(rises)[len(rises) // 8]
    )


def test_one_rise_in_eight_may_be_smaller_and_none_may_be_missing() -> None:
    leak = [10 * KIB] * 10
    assert short_run([*leak, 4 * KIB], 10 * KIB)
    assert not short_run([*leak, 4 * KIB, 4 * KIB], 10 * KIB)
    assert not short_run([*leak, 0], 10 * KIB)


def test_a_short_run_may_hold_one_collection_of_what_was_left_before() -> None:
    leak = [18 * KIB] * 6
    (finding,) = short_run([*leak, -29 * KIB, *leak], 10 * KIB)
    assert "grew in 12 of the last 13 steps" in finding.message
    assert not short_run([*leak, -29 * KIB, -29 * KIB, *leak], 10 * KIB)
    assert not short_run([*leak, *leak, -29 * KIB], 10 * KIB)


def test_growth_of_which_a_collection_frees_more_than_half_is_not_a_leak() -> None:
    leak = [12 * KIB] * 10
    assert short_run(leak, 12 * KIB, garbage=60 * KIB)
    assert not short_run(leak, 12 * KIB, garbage=61 * KIB)


@given(st.integers(0, 11), st.integers(0, 20))
def test_a_fall_of_half_of_what_was_kept_is_not_a_leak(at: int, steps: int) -> None:
    """Objects in cycles of the run itself are freed by a collection, and so is a list that is emptied."""
    rises = [20 * KIB] * 12
    rises[at] = -steps * 20 * KIB
    kept = len(rises) // 3 + at  # steps until then, with those of the first quarter
    found = short_run(rises, 20 * KIB)
    assert bool(found) == (at < 11 and steps * 2 <= kept and 11 - steps >= 6)


@given(st.integers(32, 60), st.integers(8, 16))
def test_a_longer_run_that_ends_below_a_mebibyte_is_compared_with_the_model(count: int, kib: int) -> None:
    counts = tuple(100 * MIB + step * kib * KIB for step in range(count))
    rule = find_rule("DK602")
    ended, running = (Context(rule, Declare(), "watch", ended=ended) for ended in (True, False))
    of_the_size, smaller = (MemorySamples("host", 1, counts, weights * KIB) for weights in (kib, 2 * kib))
    below = kib * KIB * (count - count // 4 - 1) < MIB
    assert list(rule.judge(of_the_size, ended))
    assert bool(list(rule.judge(smaller, ended))) == (not below)
    assert bool(list(rule.judge(of_the_size, running))) == (not below)


@given(st.lists(st.integers(0, 64 * KIB), min_size=32, max_size=128))
def test_nothing_below_a_mebibyte_is_a_leak(noise: list[int]) -> None:
    assert memory([100 * MIB + one for one in noise]) == []


def test_warm_up_and_a_cache_that_is_full_are_not_a_leak() -> None:
    assert memory([min(step, 10) * 10 * MIB for step in range(64)]) == []
    assert memory([min(step, 40) * 10 * MIB for step in range(64)]) == []


def test_single_peaks_neither_make_nor_hide_a_leak() -> None:
    flat = [100 * MIB + (400 * MIB if step % 10 == 0 else 0) for step in range(64)]
    leaking = [value + step * 256 * KIB for step, value in enumerate(flat)]
    assert memory(flat) == []
    assert len(memory(leaking)) == 1


@pytest.mark.parametrize(("jumps", "leaks"), [(4, False), (16, True)])
def test_stages_that_allocate_their_buffers_once_are_not_a_leak(jumps: int, leaks: bool) -> None:
    every = 48 // jumps
    counts = [100 * MIB + max(0, step - 16) // every * 8 * MIB + step * 16 for step in range(64)]
    assert bool(memory(counts)) == leaks


@pytest.mark.parametrize(("where", "repeating", "found"), [("host", 48, True), ("host", 4, False), ("cuda:0", 4, True)])
def test_growth_with_new_shapes_is_judged_when_they_repeat(where: str, repeating: int, found: bool) -> None:
    counts = tuple(100 * MIB + step * 256 * KIB for step in range(64))
    seen = MemorySamples(where, 1, counts, new_shapes=tuple(step < 64 - repeating for step in range(64)))
    rule = find_rule("DK602")
    context = Context(rule, Declare(), "watch")
    if found:
        assert list(rule.judge(seen, context))
    else:
        with pytest.raises(NotExamined, match="new shapes"):
            list(rule.judge(seen, context))


def test_batches_that_go_up_and_down_are_not_a_leak() -> None:
    assert memory([100 * MIB + (step * 7 % 11) * MIB for step in range(96)]) == []


@given(st.lists(st.integers(-1000, 1000), min_size=12, max_size=40))
def test_a_trend_and_its_reverse_are_never_both_certain(values: list[int]) -> None:
    assert trend_by_chance(values) >= 0.01 or trend_by_chance(values[::-1]) == 1.0
    assert math.isclose(theil_sen(values), -theil_sen(values[::-1]), abs_tol=1e-9)


@given(st.integers(0, 10), st.integers(0, 10))
def test_one_evaluation_with_a_graph_is_a_sanity_check_and_two_are_validation(count: int, alive: int) -> None:
    passes = UntrainedForwards("", None, count, alive)
    assert bool(judged("DK603", EvaluationGraphs(20, (passes,)))) == (count >= 2)


def demand(peak: int, lasting: int, budget: int) -> MemoryDemand:
    profile = MemoryProfile(
        peak=Peak(peak, "backward", "mm", "head", ()),
        parameters=lasting,
        buffers=0,
        batch=0,
        gradients=0,
        optimizer_state=0,
        activations=peak - lasting,
        by_module=(ModuleBytes("", 1), ModuleBytes("vision", 9), ModuleBytes("head", 3)),
        after_forward=peak,
        after_backward=lasting,
        after_step=lasting,
        fake_tensors=True,
    )
    return MemoryDemand(profile, budget, "declared")


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 2000))
def test_a_budget_is_kept_or_not_and_only_what_no_batch_changes_is_an_error(
    lasting: int, more: int, budget: int
) -> None:
    found = judged("DK604", demand(lasting + more, lasting, budget))
    assert bool(found) == (lasting + more > budget)
    assert all((finding.severity is Severity.ERROR) == (lasting > budget) for finding in found)


def test_the_module_to_checkpoint_is_the_one_that_keeps_most() -> None:
    (finding,) = judged("DK604", demand(100, 10, 50))
    assert finding.location.module == "vision"

"""The judges of the reproducibility rules as pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding, NotExamined, Severity, SourceLine
from debugkit.rule import Context, find_rule
from debugkit.rules.dk701_nondeterministic_step import Divergence, RepeatedStep
from debugkit.rules.dk702_worker_randomness_repeats import WorkerRandomness, WorkersRandomness
from debugkit.rules.dk703_epoch_order_repeats import (
    EpochOrder,
    EpochOrders,
    RepeatedEpoch,
    RepeatedOrder,
    SameBatch,
    TrainedEpochs,
)
from debugkit.rules.dk704_resume_differs import ResumedStep, UnsavedState


def judged(code: str, *seen: object) -> list[Finding]:
    rule = find_rule(code)
    return list(rule.judge(*seen, Context(rule, Declare())))


@pytest.mark.parametrize("source", ["draw", "kernel", "outside", "backward"])
def test_what_cannot_be_told_from_a_counter_is_a_warning(source: str) -> None:
    divergence = Divergence(source, "head", "randn", None, "head.weight")  # type: ignore[arg-type]
    (finding,) = judged("DK701", RepeatedStep(9, 2, divergence))
    assert finding.severity is (Severity.WARNING if source == "outside" else Severity.ERROR)
    assert finding.location.module == "head"


def test_equal_steps_are_silent() -> None:
    assert judged("DK701", RepeatedStep(9, 0, None)) == []


@given(st.booleans(), st.booleans(), st.booleans(), st.sampled_from([None, "noise"]))
def test_workers_are_blamed_only_for_what_is_drawn_and_repeats(
    varies: bool, workers: bool, epochs: bool, generator: str | None
) -> None:
    found = judged("DK702", WorkersRandomness((WorkerRandomness("train", 4, varies, workers, epochs, generator),)))
    assert bool(found) == (varies and (workers or epochs))
    assert all(finding.severity is (Severity.ERROR if generator else Severity.WARNING) for finding in found)


@given(st.booleans(), st.booleans(), st.sampled_from([None, True, False]))
def test_set_epoch_decides_where_there_is_one(shuffles: bool, repeats: bool, after: bool | None) -> None:
    order = EpochOrder("train", "Sampler", shuffles, repeats, after, 12)
    assert bool(judged("DK703", EpochOrders((order,)), None)) == (shuffles and (repeats if after is None else after))


def test_each_repeated_epoch_of_a_loop_is_one_finding() -> None:
    repeated = tuple(RepeatedEpoch("DistributedSampler", epoch, 3, None) for epoch in (0, 1))
    assert len(judged("DK703", None, TrainedEpochs(repeated, 6))) == 2
    with pytest.raises(NotExamined):
        judged("DK703", None, None)


@given(st.booleans())
def test_an_order_that_came_back_is_blamed_on_what_was_seeded(seeded: bool) -> None:
    order = RepeatedOrder("RandomSampler", 3, 2, 64, SourceLine("train.py", 4), seeded)
    (finding,) = judged("DK703", None, TrainedEpochs((), 3, (order,)))
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith("2 epochs of 3 had an order")
    assert ("global generator" in finding.fix) == seeded


def test_a_batch_that_every_step_reads_is_counted() -> None:
    same = SameBatch("SequentialSampler", 6, 8, 64, None)
    (finding,) = judged("DK703", None, TrainedEpochs((), 6, (), (same,)))
    assert "each of 6 steps and gave the same first batch each time: 8 of 64 indices" in finding.message


@given(st.integers(0, 3), st.booleans(), st.booleans(), st.booleans())
def test_a_resumed_step_is_blamed_for_any_bit(different: int, loss: bool, repeatable: bool, known: bool) -> None:
    unsaved = (UnsavedState("head", "calls", False),) if known else ()
    seen = ResumedStep(5, tuple(f"weight.{i}" for i in range(different)), loss, unsaved, repeatable=repeatable)
    if not repeatable:
        with pytest.raises(NotExamined):
            judged("DK704", seen)
        return
    found = judged("DK704", seen)
    assert bool(found) == (different > 0 or loss)
    assert all(("head.calls" in finding.message) == known for finding in found)

"""Work is limited by CPU time and waiting by wall time; neither counts what the grader or a busy machine takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labs.grading import ForkServer, grade, grader
from labs.grading.catalog import Lab
from labs.grading.sandbox import limits
from labs.grading.sandbox.limits import WallClock

SPIN = "\ndef gripper_loss(prediction, target):\n    while True: pass\n"
SLEEP = "\nimport time\ndef gripper_loss(prediction, target):\n    time.sleep(1000)\n"
NO_WRONG_FIX = "\n@wrong_fix('always', says='Recognised.')\ndef recognise(evidence): return True\n"
SLOW_GRADER = """
import time

@check(kind="invariant", title="t", property="p", instrument="i")
def test_a(submission, rng):
    submission.call("gripper_loss", rng.normal(2), rng.normal(2, 1))
    time.sleep(5)
    submission.call("gripper_loss", rng.normal(2), rng.normal(2, 1))
"""


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.delenv("LAB_PATIENCE", raising=False)


@pytest.mark.parametrize(
    ("ending", "limit"),
    [(SPIN, "it used more than 1 s of CPU time"), (SLEEP, "it did not finish within 2 s")],
    ids=["works", "waits"],
)
def test_a_time_out_is_told_apart_from_a_wrong_result_and_names_no_wrong_fix(
    lab_with: Callable[..., Lab],
    solution: dict[str, str],
    server: ForkServer,
    ending: str,
    limit: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if ending is SPIN:
        monkeypatch.setattr(grader, "WAITING", 1000.0)  # on a busy machine, a second of work takes much longer
    lab = lab_with(SLOW_GRADER + NO_WRONG_FIX, timeout_s=1)
    found = grade(lab, {"policy.py": solution["policy.py"] + ending}, server=server)
    assert (found.verdict, found.recognised_wrong_fix) == ("failed", None)
    for sentence in (found.reason, found.checks[0].message):
        assert sentence is not None
        assert sentence.startswith(f"The submission was stopped by the time limit, not because of a result: {limit}.")
        assert "LAB_PATIENCE=4" in sentence


def test_the_time_that_the_grader_computes_is_not_the_submissions(
    lab_with: Callable[..., Lab], solution: dict[str, str], server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grader, "WAITING", 1.0)
    found = grade(lab_with(SLOW_GRADER, timeout_s=4), solution, server=server)
    assert found.passed, found.reason


class Clock:
    """A monotonic clock and a load that a test sets."""

    now = 0.0
    load = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(limits.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(limits.os, "getloadavg", lambda: (clock.load, 0.0, 0.0))
    monkeypatch.setattr(limits.os, "cpu_count", lambda: 2)
    return clock


def test_a_machine_that_becomes_busy_during_a_grade_stretches_the_wall_time(clock: Clock) -> None:
    with WallClock(10) as wall:
        clock.now, clock.load = 10.0, 6.0
        assert not wall.is_over()
        clock.now, clock.load = 29.9, 0.0
        assert not wall.is_over()
        clock.now = 30.0
        assert wall.is_over()
        assert wall.limit_s == 30


def test_a_submission_that_fills_the_machine_gets_four_times_as_long_and_no_more(clock: Clock) -> None:
    with WallClock(10) as wall:
        clock.now, clock.load = 39.9, 900.0
        assert not wall.is_over()
        clock.now = 40.0
        assert wall.is_over()


def test_only_the_time_inside_the_block_counts(clock: Clock) -> None:
    wall = WallClock(10)
    for begins in (0.0, 100.0, 200.0):
        clock.now = begins
        with wall:
            clock.now += 3.0
            assert not wall.is_over()
    clock.now = 300.0
    with wall:
        clock.now += 1.1
        assert wall.is_over()

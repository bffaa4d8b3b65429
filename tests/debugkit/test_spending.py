"""How many experiments check() runs, by passes and by seconds."""

from __future__ import annotations

import os

import pytest

from debugkit import spending
from debugkit.spending import Spending, Stopwatch


def test_without_a_budget_experiments_run_as_long_as_they_fit_into_five_seconds() -> None:
    quick, slow = Spending(None, step_seconds=0.03), Spending(None, step_seconds=3.0)
    for one in (quick, slow):
        assert one.affords(36)
        one.spend(36, one.expected_seconds(36))
    assert quick.affords(36)
    assert not slow.affords(36)
    assert slow.affords(4)  # 40 passes in all
    assert "40" in slow.spent
    given = Spending(40, step_seconds=0.03, passes=36)
    assert not given.affords(36)
    assert not Spending(None, step_seconds=0.0).affords(41)  # nothing was measured


def test_time_that_other_processes_take_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"elapsed": 100.0, "own": 20.0, "children": 0.0}
    monkeypatch.setattr(spending.time, "monotonic", lambda: clock["elapsed"])
    monkeypatch.setattr(spending.time, "process_time", lambda: clock["own"])
    monkeypatch.setattr(
        spending.os, "times", lambda: os.times_result((0.0, 0.0, clock["children"], 0.0, clock["elapsed"]))
    )
    stopwatch = Stopwatch()
    clock.update(elapsed=106.0, own=21.5)  # a busy machine: a quarter of the elapsed time
    assert stopwatch.seconds == pytest.approx(1.5)
    clock.update(children=3.0)  # a child that measured for it
    assert stopwatch.seconds == pytest.approx(4.5)
    clock.update(own=40.0)  # two threads on a quiet machine
    assert stopwatch.seconds == pytest.approx(6.0)
    clock.update(elapsed=260.0, own=20.0, children=0.0)  # it only waits
    assert stopwatch.seconds == pytest.approx(20.0)

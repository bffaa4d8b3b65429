"""The judges of DK905 and DK906 as pure functions: silent unless the data say otherwise, whatever the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Certainty, Finding, Severity
from debugkit.rule import Context, Mode, find_rule
from debugkit.rules.dk905_batch_columns_dropped import DroppedColumns, NeededColumn
from debugkit.rules.dk906_step_returns_no_loss import StepReturns

counts = st.integers(1, 500)
RULES = {code: find_rule(code) for code in ("DK905", "DK906")}  # the first search loads every rule


def judged(code: str, seen: object, mode: Mode = "watch") -> list[Finding]:
    rule = RULES[code]
    return list(rule.judge(seen, Context(rule, Declare(), mode, step=7 if mode == "watch" else None)))


@given(st.lists(st.sampled_from("abcdef"), unique=True))
def test_dropped_columns_that_nothing_needs_are_no_finding(dropped: list[str]) -> None:
    assert judged("DK905", DroppedColumns(tuple(dropped), (), 2, 1e-5), "check") == []


@given(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), st.floats(-1e3, 1e3) | st.text(max_size=20))
def test_all_needed_columns_are_one_finding_that_names_each(columns: list[str], without: float | str) -> None:
    needed = tuple(NeededColumn((column,), without, 1.0) for column in columns)
    (finding,) = judged("DK905", DroppedColumns((*columns, "id"), needed, 2, 1e-5), "check")
    assert finding.severity is Severity.ERROR
    assert all(f"`{column}`" in finding.message for column in columns)
    assert "`id`" not in finding.message
    assert finding.evidence["needed"] == columns


@given(counts, st.data())
def test_one_loss_among_the_calls_is_enough_to_be_silent(calls: int, data: st.DataObject) -> None:
    nothing = data.draw(st.integers(0, calls - 1))
    assert judged("DK906", StepReturns(calls, nothing, 0, "", None, ended=True)) == []


@given(st.integers(3, 500), st.booleans())
def test_no_loss_in_three_calls_is_proved_from_the_first_step_on(calls: int, ended: bool) -> None:
    (finding,) = judged("DK906", StepReturns(calls, calls, 0, "None", None, ended))
    assert finding.severity is Severity.ERROR
    assert finding.location.step == 0


@pytest.mark.parametrize("calls", [1, 2])
def test_fewer_calls_are_waited_for_and_then_only_likely(calls: int) -> None:
    assert judged("DK906", StepReturns(calls, calls, 0, "None", None, ended=False)) == []
    for mode, ended in (("watch", True), ("check", False)):
        (finding,) = judged("DK906", StepReturns(calls, calls, 0, "None", None, ended), mode)
        assert finding.severity is Severity.WARNING
        assert finding.certainty is Certainty.HEURISTIC


@given(counts, st.data())
def test_a_single_detached_loss_is_proof(calls: int, data: st.DataObject) -> None:
    detached = data.draw(st.integers(1, calls))
    (finding,) = judged("DK906", StepReturns(calls, calls - detached, detached, "a float", None, ended=False))
    assert finding.severity is Severity.ERROR
    few, all_of_them = f"in {detached} of {calls} calls", "in the only call" if calls == 1 else f"in all {calls} calls"
    assert (few if detached < calls else all_of_them) in finding.message

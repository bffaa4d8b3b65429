"""How many experiments check() runs, by passes and by seconds."""

from __future__ import annotations

from debugkit.spending import Spending


def test_without_a_budget_experiments_run_as_long_as_they_fit_into_five_seconds() -> None:
    quick, slow = Spending(None, step_seconds=0.03), Spending(None, step_seconds=3.0)
    for spending in (quick, slow):
        assert spending.affords(36)
        spending.spend(36, spending.expected_seconds(36))
    assert quick.affords(36)
    assert not slow.affords(36)
    assert slow.affords(4)  # 40 passes in all
    assert "40" in slow.spent
    given = Spending(40, step_seconds=0.03, passes=36)
    assert not given.affords(36)
    assert not Spending(None, step_seconds=0.0).affords(41)  # nothing was measured

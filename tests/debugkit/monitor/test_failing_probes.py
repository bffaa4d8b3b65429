"""What a probe does inside the program's calls may fail: the program goes on, and the rule was not examined."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import debugkit
from debugkit.recorders.guard import Guard, guarded, guarded_replacement
from debugkit.rules.dk510_validation_in_training_mode.measure import PassesProbe
from debugkit.rules.dk511_optimizer_recreated.measure import ReplacedOptimizersProbe
from debugkit.rules.dk512_gradients_discarded.measure import PeriodsProbe
from debugkit.rules.dk513_kept_weights_not_copied.measure import KeptWeightsProbe


def losses(**options: Any) -> tuple[list[float], debugkit.Report]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    found = []
    with debugkit.watch(model, optimizer, **options) as run:
        for _ in range(12):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 3)).square().mean()
            loss.backward()
            optimizer.step()
            assert len(model.state_dict()) == 4
            found.append(loss.item())
    return found, run.report


@pytest.mark.parametrize(
    ("probe", "method", "code"),
    [
        pytest.param(PassesProbe, "_before", "DK510", id="hook of a module"),
        pytest.param(PassesProbe, "_after", "DK510", id="hook of a module, after"),
        pytest.param(KeptWeightsProbe, "_keeps", "DK513", id="patched function"),
        pytest.param(ReplacedOptimizersProbe, "_after_step", "DK511", id="hook of an optimizer"),
        pytest.param(PeriodsProbe, "_before_step", "DK512", id="hook of an optimizer, before"),
    ],
)
def test_the_program_continues_without_the_rule(
    monkeypatch: pytest.MonkeyPatch, probe: type, method: str, code: str
) -> None:
    expected, _ = losses(select="DK101")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no batching rule")

    monkeypatch.setattr(probe, method, fail)
    found, report = losses()
    assert found == expected
    assert report.failure is None
    why = next(entry for entry in report.not_examined if entry.code == code)
    assert why.why == "Observing it raised RuntimeError: no batching rule."
    assert isinstance(why.error, RuntimeError)


def test_after_its_first_exception_a_guard_calls_nothing_more() -> None:
    calls = []

    def note(value: int) -> int:
        calls.append(value)
        return 10 // value

    with Guard() as guard:
        kept, replaced = guarded(note), guarded_replacement(note)
    assert (kept(5), replaced(2)) == (2, 5)
    assert (replaced(0), kept(5), replaced(3)) == (0, None, 3)
    assert calls == [5, 2, 0]
    assert isinstance(guard.error, ZeroDivisionError)
    assert guarded(note) is note

"""Callbacks around the steps of optimizers: they may come and go while an optimizer steps."""

from typing import Any

import pytest
import torch
from torch import nn

import debugkit
from debugkit.recorders.optimizer_steps import OptimizerSteps
from debugkit.rules.dk511_optimizer_recreated.measure import ReplacedOptimizersProbe


def _optimizer() -> torch.optim.Optimizer:
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    return torch.optim.SGD([parameter], lr=0.1)


def test_callbacks_may_be_removed_and_added_during_a_step() -> None:
    seen: list[str] = []
    late = OptimizerSteps(after=lambda *_: seen.append("late"))

    def leave(*_: object) -> None:
        seen.append("first")
        first.remove()
        late.attach()

    first = OptimizerSteps(after=leave)
    second = OptimizerSteps(before=lambda *_: second.remove(), after=lambda *_: seen.append("second"))
    first.attach()
    second.attach()
    optimizer = _optimizer()
    optimizer.step()
    assert seen == ["first"]
    optimizer.step()
    assert seen == ["first", "late"]
    late.remove()
    optimizer.step()
    assert seen == ["first", "late"]


def test_nothing_is_left_on_pytorch_without_callbacks() -> None:
    from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

    before = len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)
    steps = OptimizerSteps(before=lambda *_: None, after=lambda *_: None)
    steps.attach()
    steps.attach()
    assert (len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)) != before
    steps.remove()
    assert (len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)) == before


def test_arguments_are_those_that_the_last_callback_returned() -> None:
    calls: list[str] = []

    def wrap(name: str) -> OptimizerSteps:
        def before(_optimizer: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            (closure,) = args[1:]

            def wrapped() -> float:
                calls.append(name)
                return float(closure())

            return (args[0], wrapped), kwargs

        return OptimizerSteps(before=before)

    def closure() -> float:
        calls.append("closure")
        return 0.0

    both = [wrap("inner"), wrap("outer")]
    for one in both:
        one.attach()
    _optimizer().step(closure)
    for one in both:
        one.remove()
    assert calls == ["outer", "inner", "closure"]


def test_a_probe_that_fails_in_a_step_is_removed_and_the_loop_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(ReplacedOptimizersProbe, "_after_step", fail)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with debugkit.watch(model, optimizer) as run:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
    assert run.steps == 3
    assert any(one.code == "DK511" and "planted" in one.why for one in run.report.not_examined)


def test_other_parameters_may_be_trained_for_a_while() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with debugkit.watch(model, optimizer) as run:
        for step in range(6):
            model[0].requires_grad_(step % 3 == 0)
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
        probes = run._probes
        assert probes is not None
        assert [one.error for one in probes.missing.values() if one.error is not None] == []

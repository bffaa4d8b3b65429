"""A run that is too short for a rule does not count as examined, and the title counts the steps that were taken."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import debugkit

OF_THE_LOOP = ("DK501", "DK502", "DK503", "DK504", "DK505")
NEED_SEVERAL_STEPS = (
    "DK115",
    "DK117",
    "DK119",
    "DK205",
    "DK206",
    "DK207",
    *OF_THE_LOOP,
    "DK507",
    "DK601",
    "DK602",
    "DK605",
    "DK705",
)


def policy() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters())


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(("steps", "still"), [(1, NEED_SEVERAL_STEPS), (8, ("DK205", "DK206", "DK602")), (32, ())])
def test_a_rule_is_examined_once_the_run_is_long_enough(steps: int, still: tuple[str, ...]) -> None:
    model, optimizer = policy()
    with debugkit.watch(model, optimizer) as run:
        train(model, optimizer, steps)
    too_short = {entry.code for entry in run.report.not_examined if "run is too short" in entry.why}
    assert too_short == set(still)
    assert set(NEED_SEVERAL_STEPS) - too_short <= set(run.report.examined)


def test_the_reason_says_how_many_steps_there_were_and_are_needed() -> None:
    model, optimizer = policy()
    with debugkit.watch(model, optimizer) as run:
        train(model, optimizer, 2)
    why = {entry.code: entry.why for entry in run.report.not_examined}
    assert why["DK207"] == "The run is too short: 2 of 3 steps."
    assert why["DK502"] == "The run is too short: 2 of 8 calls of `backward()`."


def test_a_scaler_is_not_examined_by_a_few_of_its_steps() -> None:
    model, optimizer = policy()
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    with debugkit.watch(model, optimizer, select="DK208") as run:
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(4, 3)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert run.report.not_examined[-1].why == "The run is too short: 3 of 32 calls of `scaler.step()`."


def test_a_run_that_raised_is_not_judged_as_one_that_ended() -> None:
    model, optimizer = policy()
    other = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    run = debugkit.watch(model, [optimizer, other], select="DK502")

    def interrupted() -> None:
        with run:
            for _ in range(9):
                other.zero_grad()
                train(model, optimizer, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not run.report.findings


def test_skipped_steps_are_counted_apart() -> None:
    model, optimizer = policy()
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    with debugkit.watch(model, optimizer) as run:
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 3)).square().mean()
            scaler.scale(loss * torch.inf if step == 1 else loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert run.report.title == "Sequential, 3 steps watched, 1 skipped by a GradScaler"
    assert run.steps == 3


def test_steps_by_an_optimizer_that_was_not_passed_are_counted_separately() -> None:
    model, optimizer = policy()
    unrelated = nn.Linear(3, 2)
    with debugkit.watch(model, optimizer) as run:
        train(model, optimizer, 2)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 6)
        train(unrelated, torch.optim.SGD(unrelated.parameters(), lr=0.1), 1)
        expected = "Sequential, 2 steps watched, 6 further steps by an optimizer that was not passed to watch()"
        assert run.report.title == expected
    assert run.report.title == expected


def test_a_loop_without_an_optimizer_is_told_that_more_steps_do_not_help() -> None:
    model = policy()[0]
    with debugkit.watch(model) as run:
        for _ in range(12):
            model.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
    why = {entry.code: entry.why for entry in run.report.not_examined}
    for code in ("DK101", "DK201", "DK207", "DK501"):
        assert why[code].startswith("No torch optimizer made a step in 12 backward passes"), why[code]
    shown = " ".join(run.report.to_text().split())
    assert "a step of a torch optimizer (there was none)" in shown
    assert "more steps of the loop" not in shown


def test_a_loop_with_an_optimizer_that_was_not_passed_is_not_told_so() -> None:
    model, optimizer = policy()
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    with debugkit.watch(model, optimizer) as run:
        train(model, other, 4)
    assert not any("No torch optimizer" in entry.why for entry in run.report.not_examined)

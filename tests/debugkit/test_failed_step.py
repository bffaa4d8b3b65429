"""A step or a loop that raises: the report says so, whatever was found, and no rule is blamed for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import debugkit
from debugkit.frames import one_line
from debugkit.report.not_examined import Cause, groups


class Stateful(nn.Module):
    """A policy that fails in a method of its own, so that the line is known."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


def loss_fn(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).mean()


@pytest.mark.parametrize("make", [lambda: nn.Sequential(nn.Linear(4, 2)), Stateful])
def test_a_crash_of_the_model_is_never_counted_as_a_bug_of_debugkit(make: Callable[[], nn.Module]) -> None:
    report = debugkit.check(make(), torch.ones(8, 3), loss_fn)
    assert report.failure is not None
    assert "mat1 and mat2" in report.failure
    found = {group.cause: group for group in groups(report)}
    assert Cause.BUG not in found
    assert len(found[Cause.FAILURE].entries) > 20
    assert all("mat1 and mat2" in entry.why for entry in found[Cause.FAILURE].entries)


def test_a_measurement_that_fails_by_itself_is_named_as_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(setup: Any) -> None:
        raise ZeroDivisionError("by the measurement itself")

    monkeypatch.setattr("debugkit.rules.dk305_batch_leak.measure.replace_sample_zero", broken)
    broken.__code__ = broken.__code__.replace(co_filename=debugkit.__file__)  # as if it were a line of debugkit
    report = debugkit.check(Stateful(), torch.ones(8, 4), loss_fn, select="DK305")
    assert [group.cause for group in groups(report)] == [Cause.BUG]
    assert report.failure is None


def run_that_raises(error: BaseException, **keywords: Any) -> debugkit.Run:
    model = Stateful()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = debugkit.watch(model, optimizer, select=["DK2", "DK5"], **keywords)
    with pytest.raises(type(error)), watched as run:  # noqa: PT012 - the loop is the statement
        for _ in range(3):
            optimizer.zero_grad()
            loss_fn(model, torch.randn(8, 4)).backward()
            optimizer.step()
        raise error
    return run


def test_a_loop_that_raised_is_the_failure_of_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(__file__)
    monkeypatch.chdir(here.parent)
    report = run_that_raises(KeyError("action")).report
    assert report.failure is not None
    assert report.failure.startswith("The loop raised KeyError: 'action' at ")
    assert report.failure.endswith(f" at {here.name}:{run_that_raises.__code__.co_firstlineno + 9}.")
    assert not report.ok
    with pytest.raises(debugkit.DebugkitError, match="KeyError"):
        report.raise_for_errors()


def test_a_run_says_for_each_rule_where_it_is_examined() -> None:
    model = Stateful()
    with debugkit.watch(model) as run:
        pass
    why = {entry.code: entry.why for entry in run.report.not_examined}
    assert "debugkit.check()" in why["DK305"]
    assert "check_config()" in why["DK901"]
    assert "no complete step" in why["DK501"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(0)])
def test_a_loop_that_was_stopped_on_purpose_did_not_fail(error: BaseException) -> None:
    assert run_that_raises(error).report.failure is None


def test_a_loop_that_debugkit_itself_stopped_did_not_fail() -> None:
    model = Stateful()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = debugkit.watch(model, optimizer, select="DK2", on_finding="raise")
    with pytest.raises(debugkit.DebugkitError), watched as run:  # noqa: PT012 - the loop is the statement
        (loss_fn(model, torch.ones(8, 4)) * float("nan")).backward()
        optimizer.step()
    assert run.report.failure is None
    assert run.report.errors


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("No such camera.", "ValueError: No such camera"),
        ("", "ValueError"),
        ("The keys are\nnot those of the model:\n  a\n  b", "ValueError: The keys are not those of the model:"),
        ("The first line.\nthe second", "ValueError: The first line"),
        (
            "Expected one of two. " * 7 + "Here is a sentence that is cut.",
            f"ValueError: {'Expected one of two. ' * 6}Expected one of two …",
        ),
        ("word " * 60, f"ValueError: {'word ' * 32}…"),
        ("w" * 300, f"ValueError: {'w' * 160} …"),
    ],
)
def test_a_long_message_is_cut_after_a_sentence_or_a_word(message: str, shown: str) -> None:
    assert one_line(ValueError(message)) == shown

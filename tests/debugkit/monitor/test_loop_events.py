"""The events that the monitor receives from a loop: every one, once, in order, whatever name it was imported under."""

from __future__ import annotations

import pytest
import torch
import training_loops as loops
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import clip_grad_norm_ as clip_imported_by_name  # before anything is patched, as scripts do

import debugkit
from debugkit.declare import Declare
from debugkit.finding import NotExamined, SourceLine
from debugkit.loop.losses import Losses
from debugkit.loop.optimizer_events import GradientUse, OptimizerEvents
from debugkit.loop.scaler_use import ScalerUse
from debugkit.loop.training_modes import TrainingModes
from debugkit.rule import Context, find_rule
from debugkit.watched_run import monitor_of


def record(loop: loops.Loop, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> debugkit.watch:
    """The observations at the end of a loop."""
    with debugkit.watch(model, optimizers, select="DK5") as run:
        loop(model, optimizers)
        monitor_of(run).summarise()
        return dict(monitor_of(run).observations)


def kinds(events: OptimizerEvents) -> list[str]:
    return [event.kind for event in events.events]


def test_events_come_in_the_order_of_the_loop() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def loop(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).sum().backward()
            clip_imported_by_name(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        return []

    seen = record(loop, model, [optimizer])[OptimizerEvents]
    assert kinds(seen) == ["zero_grad", "backward", "clip", "step", "scheduler_step"] * 2
    assert [event.order for event in seen.events] == list(range(10))
    assert [event.step for event in seen.events] == [0, 0, 0, 0, 1, 1, 1, 1, 1, 2]
    assert all(event.at is not None and event.at.file == __file__ for event in seen.events)
    assert [event.learning_rate for event in seen.events if event.kind == "step"] == [0.1, 0.05]
    assert (seen.labels, seen.steps, seen.backwards) == (("SGD",), (2,), 2)


def test_a_clip_of_a_part_says_how_much_it_covered() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
        model(torch.randn(4, 3)).sum().backward()
        torch.nn.utils.clip_grad_norm_(list(model[1].parameters()), 1.0)
        optimizer.step()
        return []

    clip = record(loop, model, [optimizer])[OptimizerEvents].events[1]
    assert (clip.kind, clip.clipped, clip.clippable, clip.optimizers) == ("clip", 2, 4, (0,))


def test_a_scaler_is_heard_and_its_skips_are_counted() -> None:
    model = loops.Checkpointed()
    seen = record(loops.mixed_precision, model, [torch.optim.AdamW(model.parameters())])
    events, scaler = seen[OptimizerEvents], seen[ScalerUse]
    assert scaler.asked == 6
    assert scaler.skipped > 0, "the loop is meant to overflow"
    assert events.steps == (6 - scaler.skipped,)
    first = kinds(events)[:6]
    assert first == ["zero_grad", "backward", "scaler_unscale", "clip", "scaler_step", "scaler_update"]


def test_recomputation_in_a_reentrant_checkpoint_is_no_backward_of_the_loop() -> None:
    model = loops.Checkpointed(use_reentrant=True)
    seen = record(loops.plain, model, [torch.optim.AdamW(model.parameters())])
    assert seen[OptimizerEvents].backwards == 6


def test_losses_are_those_of_the_loop_unscaled() -> None:
    model = loops.Checkpointed()
    kept: list[float] = []

    def loop(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
        kept.extend(loops.mixed_precision(model, optimizers))
        return kept

    losses = record(loop, model, [torch.optim.AdamW(model.parameters())])[Losses]
    assert [loss.value for loss in losses.last] == kept


def test_train_and_eval_flags_are_kept_where_they_change() -> None:
    model = loops.Policy()

    def loop(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
        loops.plain(model, optimizers)
        model.eval()
        return loops.plain(model, optimizers)

    modes = record(loop, model, [torch.optim.AdamW(model.parameters())])[TrainingModes]
    assert modes.steps == 12
    assert [(change.root_training, change.sensitive_in_eval) for change in modes.changes] == [(True, 0), (False, 2)]
    assert modes.changes[0].sensitive == 2  # BatchNorm and dropout


def test_an_optimizer_that_was_not_given_is_not_heard() -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    foreign = torch.optim.SGD(other.parameters(), lr=0.1)

    def loop(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
        other(torch.randn(4, 3)).sum().backward()
        foreign.step()
        foreign.zero_grad()
        return []

    seen = record(loop, model, [torch.optim.SGD(model.parameters(), lr=0.1)])[OptimizerEvents]
    assert (seen.labels, seen.steps) == (("SGD",), (0,))
    assert kinds(seen) == ["backward"]


USES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.booleans()), max_size=30)


@given(USES)
def test_dk501_fires_exactly_at_three_stale_steps_of_one_optimizer(drawn: list[tuple[int, int, bool]]) -> None:
    counts = [0, 0]
    uses = []
    for number, accumulations, reset in drawn:
        uses.append(GradientUse(number, counts[number], accumulations, reset, SourceLine("train.py", 9)))
        counts[number] += 1
    seen = OptimizerEvents(("AdamW", "SGD"), tuple(counts), len(drawn), 0, (), tuple(uses))
    rule = find_rule("DK501")
    try:
        found = list(rule.judge(seen, Context(rule, Declare(), "watch")))
    except NotExamined:
        found = []
    stale = [
        sum(use.optimizer == number and use.step > 0 and use.accumulations > 0 and not use.reset for use in uses)
        for number in (0, 1)
    ]
    assert [finding.evidence["optimizer"] for finding in found] == [n for n in (0, 1) if stale[n] >= 3]
    assert [finding.evidence["stale_steps"] for finding in found] == [count for count in stale if count >= 3]


@pytest.mark.parametrize("every", [1, 4])
def test_stale_gradients_are_found_whatever_steps_are_looked_at(every: int) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with debugkit.watch(model, optimizer, select="DK501", every=every, on_finding=lambda _: None) as run:
        for _ in range(5):
            model(torch.randn(4, 3)).square().sum().backward()
            optimizer.step()
    assert [finding.code for finding in run.report.findings] == ["DK501"]

"""watch() keeps no batch, graph or model alive."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
import training_loops as loops

import debugkit
from debugkit.watched_run import monitor_of


class Marker:
    """Tied to an autograd node, which takes no weak reference itself, to see when it goes."""


def test_no_batch_and_no_graph_outlives_its_step(program: Any) -> None:
    model, optimizers = program
    with debugkit.watch(model, optimizers, select="DK2") as run:
        for _ in range(3):
            batch = torch.randn(4, 3)
            output = model(batch)["action"]
            loss = output.square().mean()
            optimizers[0].zero_grad()
            loss.backward()
            optimizers[0].step()
            kept = [weakref.ref(thing) for thing in (batch, output, loss)]
            graph = weakref.ref(marker := Marker())
            loss.grad_fn.metadata["marker"] = marker
            storage = batch.untyped_storage()._weak_ref()
            del batch, output, loss, marker
            gc.collect()
            assert [ref() for ref in kept] == [None] * 3
            assert graph() is None
            assert torch.UntypedStorage._expired(storage)
            torch.UntypedStorage._free_weak_ref(storage)
        assert run.steps == 3


def test_validation_batches_are_let_go_at_once(program: Any) -> None:
    model, optimizers = program
    with debugkit.watch(model, optimizers, select="DK2") as run, torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 3))
        assert monitor_of(run).recorder.calls == []
        assert len(monitor_of(run).timeline) == 0


def test_gradient_forwards_without_a_step_do_not_pile_up(program: Any) -> None:
    model, optimizers = program
    with debugkit.watch(model, optimizers, select="DK2") as run:
        for _ in range(150):
            model(torch.randn(4, 3))
        assert len(monitor_of(run).recorder.calls) <= 64


def test_the_model_outlives_the_run_by_nothing(program: Any) -> None:
    model = loops.Policy()
    optimizer = torch.optim.AdamW(model.parameters())
    with debugkit.watch(model, optimizer) as run:
        loops.plain(model, [optimizer])
    kept = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert kept() is None
    assert run.report.title == "Policy, 6 steps watched"

"""find_graph_cut changes nothing, keeps nothing, and says in a sentence what it cannot examine."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack

import debugkit
from debugkit.finding import NotExamined
from debugkit.measurements.autograd_graph.measure import AutogradGraphProbe, count_graph_nodes
from debugkit.measurements.graph_cut.gradient_stops import DetachmentProbe
from debugkit.setup import TrainingSetup


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1)
        self.seen: list[Tensor] = []
        self.fail = False

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.norm(self.a(x)))
        self.seen.append(h)
        self.last = h
        if self.fail:
            raise RuntimeError("planted")
        return self.b(h.detach()).sum()


def loss(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)


def hooks_of(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())


@pytest.mark.parametrize("fail", [False, True])
def test_model_gradients_and_randomness_are_bit_identical_afterwards(fail: bool) -> None:
    model, x = Net(), torch.randn(5, 4)
    model(x).backward()
    model.seen.clear()
    model.fail = fail
    state = {k: v.clone() for k, v in model.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    versions = [p._version for p in model.parameters()]
    last, rng, batch = model.last, torch.get_rng_state(), x.clone()
    if fail:
        with pytest.raises(RuntimeError, match="planted"):
            debugkit.find_graph_cut(model, x, loss)
    else:
        assert debugkit.find_graph_cut(model, x, loss).parameters
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    for p, grad in zip(model.parameters(), grads, strict=True):
        assert p.grad is grad is None or torch.equal(p.grad, grad)
    assert [p._version for p in model.parameters()] == versions
    assert torch.equal(torch.get_rng_state(), rng)
    assert torch.equal(x, batch)
    assert model.last is last
    assert model.seen == []
    assert hooks_of(model) == 0
    assert _get_current_function_mode_stack() == []


def test_no_activation_outlives_the_call() -> None:
    alive: list[weakref.ref[Tensor]] = []

    class Watched(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            alive.append(weakref.ref(h))
            return self.b(h.detach()).sum()

    debugkit.find_graph_cut(Watched(), torch.randn(5, 4), loss)
    gc.collect()
    assert len(alive) > 1
    assert [ref() for ref in alive] == [None] * len(alive)


def test_it_works_inside_no_grad_of_the_caller() -> None:
    with torch.no_grad():
        assert debugkit.find_graph_cut(Net(), torch.randn(5, 4), loss).parameters
        assert not torch.is_grad_enabled()


def test_no_trainable_parameter_is_a_sentence() -> None:
    with pytest.raises(NotExamined, match="No parameter has requires_grad=True"):
        debugkit.find_graph_cut(Net().requires_grad_(False), torch.randn(5, 4), loss)


def test_a_loss_that_is_no_scalar_is_a_sentence() -> None:
    with pytest.raises(NotExamined, match=r"scalar tensor, but is a tensor of shape \(5, 4\)"):
        debugkit.find_graph_cut(Net(), torch.randn(5, 4), lambda m, x: m.a(x))


def test_a_running_total_shows_its_past_graphs_as_nodes() -> None:
    model, x, total, counts = nn.Linear(4, 1), torch.randn(2, 4), torch.zeros(()), []
    for _ in range(4):
        total = total + model(x).sum()
        counts.append(count_graph_nodes(total))
    steps = {after - before for before, after in itertools.pairwise(counts)}
    assert len(steps) == 1
    assert steps.pop() > 0
    assert count_graph_nodes(total.detach()) == 0


def test_probes_let_go_of_hooks_and_modes_after_an_exception() -> None:
    setup = TrainingSetup.of(Net())
    graph = AutogradGraphProbe(setup)
    setup.model.fail = True  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="planted"), graph, DetachmentProbe(setup):
        setup.model(torch.randn(3, 4))
    assert hooks_of(setup.model) == 0
    assert graph.outputs == []
    assert _get_current_function_mode_stack() == []
    with pytest.raises(NotExamined):
        _ = graph.observation

"""After anything was done to a setup, it is what it was, bit for bit."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from debugkit.preserve_state import preserved, same_start
from debugkit.randomness import same_randomness
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors, tensors_in


class Policy(nn.Module):
    """Has everything that a training step may change."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.head = nn.Linear(8, 2)
        self.queue: deque[int] = deque([1, 2], maxlen=4)
        self.cache: dict[str, torch.Tensor] = {}
        self.seen: set[int] = {7}
        self.history = [1.0]
        self.calls = 0
        self.table = torch.ones(3)
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.queue.append(self.calls)
        self.cache["x"] = x
        self.seen.add(self.calls)
        self.history.append(float(x.sum()))
        self.table += torch.rand(3, generator=self.generator)
        return self.head(self.body(x))


def trained(optimizer_class: Callable[..., torch.optim.Optimizer]) -> TrainingSetup:
    torch.manual_seed(0)
    model = Policy()
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    setup = TrainingSetup.of(model, torch.randn(5, 4), lambda m, b: m(b).square().mean(), optimizer)
    for _ in range(2):
        setup.loss().backward()
        optimizer.step()
    model.body[2].eval()
    return setup


def everything(setup: TrainingSetup) -> dict[str, Any]:
    """A deep copy of all that is promised to stay."""
    model = setup.model
    parts: dict[str, Any] = {
        "state": dict(model.state_dict()),
        "gradients": {name: parameter.grad for name, parameter in model.named_parameters()},
        "trains": {name: parameter.requires_grad for name, parameter in model.named_parameters()},
        "flags": {name: module.training for name, module in model.named_modules()},
        "hooks": [len(module._forward_hooks) for module in model.modules()],
        "plain": [
            list(model.queue),
            dict(model.cache),
            set(model.seen),
            list(vars(model).get("history", ())),
            model.calls,
            model.table,
        ],
        "generator": model.generator.get_state(),
        "optimizers": [[dict(o.state), [dict(group) for group in o.param_groups]] for o in setup.optimizers],
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),
    }
    return map_tensors(parts, lambda _, tensor: tensor.detach().clone())


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    tensors, others = list(tensors_in(one)), list(tensors_in(other))
    if [path for path, _ in tensors] != [path for path, _ in others]:
        return False
    zero = lambda _, tensor: None  # noqa: E731
    return all(a.equal(b) for (_, a), (_, b) in zip(tensors, others, strict=True)) and (
        repr(map_tensors(one, zero)) == repr(map_tensors(other, zero))
    )


def train(setup: TrainingSetup) -> None:
    setup.loss().backward()
    for optimizer in setup.optimizers:
        optimizer.step()


def rewire(setup: TrainingSetup) -> None:
    model = setup.model
    model.eval()
    model.requires_grad_(False)
    model.register_forward_hook(lambda *_: None)
    model.extra = nn.Linear(2, 2)
    model.head = nn.Linear(8, 2)
    model.body[0].weight.data = torch.zeros(8, 4)
    del model.history
    for optimizer in setup.optimizers:
        optimizer.param_groups[0]["lr"] = 0.0
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})


def reseed(_: TrainingSetup) -> None:
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)
    torch.rand(10)


def fail(setup: TrainingSetup) -> None:
    train(setup)
    raise ZeroDivisionError


@pytest.mark.parametrize("optimizer_class", [torch.optim.AdamW, torch.optim.Adagrad, torch.optim.SGD])
@pytest.mark.parametrize("disturb", [train, rewire, reseed, fail])
def test_everything_is_put_back(disturb: Callable[[TrainingSetup], None], optimizer_class: Any) -> None:
    setup = trained(optimizer_class)
    before = everything(setup)
    try:
        with preserved(setup):
            disturb(setup)
            assert not same(before, everything(setup)), "the disturbance disturbs nothing, so this proves nothing"
    except ZeroDivisionError:
        assert disturb is fail
    assert same(before, everything(setup))


def test_training_continues_as_if_nothing_had_been() -> None:
    plain, disturbed = trained(torch.optim.AdamW), trained(torch.optim.AdamW)
    with preserved(disturbed):
        train(disturbed)
        train(disturbed)
    torch.manual_seed(5)
    train(plain)
    torch.manual_seed(5)
    train(disturbed)
    assert same({"state": dict(plain.model.state_dict())}, {"state": dict(disturbed.model.state_dict())})


def test_gradient_tensors_keep_their_identity_and_are_none_inside() -> None:
    setup = trained(torch.optim.SGD)
    gradients = {name: parameter.grad for name, parameter in setup.model.named_parameters()}
    with preserved(setup):
        assert all(parameter.grad is None for parameter in setup.model.parameters())
        train(setup)
    assert all(parameter.grad is gradients[name] for name, parameter in setup.model.named_parameters())


def test_lazy_state_of_an_optimizer_is_gone_again() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    setup = TrainingSetup.of(model, torch.randn(3, 2), lambda m, b: m(b).sum(), optimizer)
    with preserved(setup):
        train(setup)
        assert optimizer.state
    assert not optimizer.state


def test_an_optimizer_with_a_closure_goes_on_as_if_it_had_not_been_looked_at() -> None:
    """LBFGS keeps a cache on itself and lists of tensors in its state."""

    def train(looked_at: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, batch = nn.Linear(4, 2), torch.randn(5, 4)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            return loss

        for _ in range(2):
            if looked_at:
                with preserved(TrainingSetup.of(model, batch, optimizer=optimizer)):
                    for _ in range(2):
                        optimizer.step(closure)
            optimizer.step(closure)
        return [parameter.detach().clone() for parameter in model.parameters()]

    for alone, looked_at in zip(train(False), train(True), strict=True):
        assert torch.equal(alone, looked_at)


def test_scheduler_around_the_optimizer_still_counts_its_own_steps() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
    before = copy.deepcopy(scheduler.state_dict())
    with preserved(TrainingSetup.of(model, optimizer=optimizer)):
        optimizer.step()
    assert scheduler.state_dict() == before
    optimizer.step()
    scheduler.step()  # would warn, and warnings are errors here, if the order of calls had been forgotten


def test_tied_parameters_stay_tied() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    setup = TrainingSetup.of(
        model, torch.randn(2, 3), lambda m, b: m(b).sum(), torch.optim.SGD(model.parameters(), lr=0.1)
    )
    with preserved(setup):
        train(setup)
    assert model[1].weight is model[0].weight


def test_passes_with_one_seed_draw_alike_and_cost_the_caller_no_draw() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with same_randomness(4):
        first = torch.rand(2), random.random(), np.random.rand()
    with same_randomness(4):
        second = torch.rand(2), random.random(), np.random.rand()
    assert first[0].equal(second[0])
    assert first[1:] == second[1:]
    assert torch.rand(3).equal(expected)


def test_what_the_loss_function_holds_is_put_back() -> None:
    generator, numbers, seen = torch.Generator().manual_seed(1), np.random.default_rng(2), {"steps": 0}
    replay, critic, count = [torch.zeros(2)], nn.BatchNorm1d(4), 0

    def weight() -> float:
        seen["steps"] += 1
        return float(numbers.random())

    def loss_fn(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        replay[0] += 1
        replay.append(torch.rand(2, generator=generator))
        return model(critic(batch).detach()).square().mean() * weight() * count

    setup = TrainingSetup.of(Policy(), torch.randn(5, 4), loss_fn)
    for restored in (preserved, same_start):
        with restored(setup), same_randomness(0):
            first = setup.loss().item()
        with restored(setup), same_randomness(0):
            assert setup.loss().item() == first
    assert (count, seen, len(replay), float(replay[0].sum())) == (0, {"steps": 0}, 1, 0.0)
    assert int(critic.num_batches_tracked) == 0
    assert generator.get_state().equal(torch.Generator().manual_seed(1).get_state())


def test_another_module_of_the_loss_function_keeps_its_weights_and_gets_no_gradient() -> None:
    teacher = nn.Linear(4, 2)

    def loss_fn(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        loss = (model(batch) - teacher(batch)).square().mean()
        with torch.no_grad():
            teacher.weight.mul_(0.9)
        return loss + teacher(batch).square().mean()

    before = teacher.weight.detach().clone()
    model, extra = nn.Linear(4, 2), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([*model.parameters(), extra], lr=0.1)
    setup = TrainingSetup.of(model, torch.randn(5, 4), loss_fn, optimizer)
    with preserved(setup):
        (setup.model(setup.batch) - teacher(setup.batch) + extra.sum()).square().mean().backward()
        setup.loss()
        optimizer.step()
        assert teacher.weight.grad is not None
    assert teacher.weight.grad is None
    assert teacher.weight.equal(before)
    assert extra.grad is None
    assert extra.tolist() == [1.0, 1.0, 1.0]

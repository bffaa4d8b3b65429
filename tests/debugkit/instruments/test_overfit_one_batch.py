"""overfit_one_batch learns what can be learnt, and measures the suspects where it does not."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import debugkit
from debugkit.finding import NotExamined
from debugkit.instruments.overfit_result import Overfit, sparkline


def net(dropout: float = 0.0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Dropout(dropout), nn.BatchNorm1d(32), nn.Linear(32, 1))


def regression(model: nn.Module, x: Tensor) -> Tensor:
    return (model(x) - x.prod(-1, keepdim=True)).pow(2).mean()


def noisy(model: nn.Module, x: Tensor) -> Tensor:
    """A flow-matching loss in small: a new target is drawn at each call."""
    return (model(x) - torch.randn(len(x), 1)).pow(2).mean()


def guilty(overfit: Overfit) -> set[str]:
    return {suspect.name for suspect in overfit.suspects if suspect.guilty}


def test_a_healthy_model_learns_its_batch_and_no_suspect_is_measured() -> None:
    found = debugkit.overfit_one_batch(net(), torch.randn(8, 4), regression, learning_rate=1e-2)
    assert found
    assert found.suspects == ()
    assert len(found.losses) == 101
    assert "learnt" in str(found)


def test_drawn_noise_and_dropout_are_the_same_at_every_step() -> None:
    found = debugkit.overfit_one_batch(net(dropout=0.3), torch.randn(8, 4), noisy, learning_rate=1e-2, steps=200)
    assert found
    again = debugkit.overfit_one_batch(net(dropout=0.3), torch.randn(8, 4), noisy, learning_rate=0.0, steps=3)
    assert len(set(again.losses)) == 1


def test_a_cut_graph_is_suspected() -> None:
    def cut(model: nn.Module, x: Tensor) -> Tensor:
        return (model[4](model[:4](x).detach() * 0 + 1) - x[:, :1]).pow(2).mean() + 0 * model[:4](x).detach().sum()

    def through(model: nn.Module, x: Tensor) -> Tensor:
        return (model[4](model[:4](x).mean(0, keepdim=True).detach()) - x[:, :1]).pow(2).mean()

    assert "cut graph" in guilty(debugkit.overfit_one_batch(net(), torch.randn(8, 4), through, steps=20))
    assert "cut graph" not in guilty(debugkit.overfit_one_batch(net(), torch.randn(8, 4), noisy, steps=2))
    assert not debugkit.overfit_one_batch(net(), torch.randn(8, 4), cut, steps=20)


@pytest.mark.parametrize(
    ("rate", "name"), [(1e-6, "learning rate too low"), (30.0, "learning rate too high")], ids=["low", "high"]
)
def test_a_wrong_learning_rate_is_suspected(rate: float, name: str) -> None:
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    found = debugkit.overfit_one_batch(model, torch.randn(8, 4), regression, learning_rate=rate, steps=60)
    assert not found
    assert name in guilty(found)


def test_one_input_with_two_answers_is_flat_not_slow() -> None:
    x = torch.ones(8, 4)
    answers = torch.arange(8.0)[:, None] % 2 * 2 - 1

    def contradicting(model: nn.Module, x: Tensor) -> Tensor:
        return (model(x) - answers).pow(2).mean()

    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    found = debugkit.overfit_one_batch(model, x, contradicting, learning_rate=1e-2)
    assert found.verdict == "stuck"
    assert guilty(found) == {"labels or capacity"}
    assert "one input with two answers" in str(found)


def test_a_loss_that_becomes_nan_is_diverged_and_stops_there() -> None:
    def exploding(model: nn.Module, x: Tensor) -> Tensor:
        return (regression(model, x) - 0.5).sqrt()

    found = debugkit.overfit_one_batch(net(), torch.randn(8, 4), exploding, learning_rate=1e-2)
    assert found.verdict == "diverged"
    assert "NaN or Inf" in guilty(found)
    assert sparkline(found.losses).endswith("!")


@pytest.mark.parametrize("loss_fn", [regression, noisy])
def test_the_model_is_bit_identical_afterwards(loss_fn: Callable[[nn.Module, Tensor], Tensor]) -> None:
    model = net(dropout=0.3)
    state, rng = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    debugkit.overfit_one_batch(model, torch.ones(8, 4), loss_fn, steps=3)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(p.grad is None for p in model.parameters())


def test_bad_input_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1"):
        debugkit.overfit_one_batch(net(), torch.ones(8, 4), regression, steps=0)
    with pytest.raises(NotExamined, match="nothing can be learnt"):
        debugkit.overfit_one_batch(net().requires_grad_(False), torch.ones(8, 4), regression)

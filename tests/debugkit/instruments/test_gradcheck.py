"""gradcheck sees what finite differences see, and four things they do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import debugkit


class Gate(torch.autograd.Function):
    """x · sigmoid(w), right."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w.sigmoid()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        s = w.sigmoid()
        return grad * s, grad * x * s * (1 - s)


class MissesATerm(Gate):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad * w.sigmoid(), grad * x * w.sigmoid()  # (1 - s) is missing


class ReadsTheBufferAsFlat(Gate):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        s = w.sigmoid()
        flat = grad.as_strided(grad.shape, torch.empty(grad.shape).stride())
        return flat * s, flat * x * s * (1 - s)


class ViewsTheBuffer(Gate):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        s = w.sigmoid()
        grad = grad.view(-1).view(x.shape)
        return grad * s, grad * x * s * (1 - s)


class WritesIntoTheBuffer(Gate):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        s = w.sigmoid()
        to_w = grad * x * s * (1 - s)
        return (grad.mul_(s) if grad.is_contiguous() and all(grad.stride()) else grad * s), to_w


class KeepsOnTheClass(Gate):
    kept: tuple[Tensor, Tensor]

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        KeepsOnTheClass.kept = (x, w)
        return x * w.sigmoid()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = KeepsOnTheClass.kept
        s = w.sigmoid()
        return grad * s, grad * x * s * (1 - s)


INPUTS = (torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7]]), torch.tensor([[1.0, 0.2, -0.4], [0.1, -2.0, 0.9]]))


def failing(function: Any) -> set[str]:
    return {test.name for test in debugkit.gradcheck(function, *INPUTS).tests if not test.ok}


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (Gate, set()),
        (MissesATerm, {"float64 Jacobian"}),
        (ReadsTheBufferAsFlat, {"strided incoming gradient"}),
        (ViewsTheBuffer, {"strided incoming gradient"}),
        (WritesIntoTheBuffer, {"incoming buffer unchanged"}),
        (KeepsOnTheClass, {"used twice in one graph"}),
        (lambda x, w: torch.nn.functional.silu(x @ w.T), set()),
        (lambda x, w: (x.softmax(-1), w.sum()), set()),
    ],
)
def test_each_mistake_fails_its_own_test_and_no_other(function: Any, wrong: set[str]) -> None:
    # as_strided over an expanded gradient reads beyond its one number, which is refused or wrong as well
    assert failing(function) - {"expanded incoming gradient"} == wrong
    assert bool(debugkit.gradcheck(function, *INPUTS)) == (not wrong)


@pytest.mark.parametrize("function", [ReadsTheBufferAsFlat, WritesIntoTheBuffer, KeepsOnTheClass])
def test_torchs_own_gradcheck_says_true_where_this_one_says_why_not(function: Any) -> None:
    doubles = [x.double().requires_grad_() for x in INPUTS]
    assert torch.autograd.gradcheck(function.apply, doubles)
    assert not debugkit.gradcheck(function, *INPUTS)


def test_an_expanded_gradient_that_is_read_as_a_buffer_is_wrong() -> None:
    assert "expanded incoming gradient" in failing(ReadsTheBufferAsFlat)
    assert "expanded incoming gradient" not in failing(Gate)


def test_the_worst_entry_names_input_place_and_both_numbers() -> None:
    found = debugkit.gradcheck(MissesATerm, *INPUTS)
    worst = found.worst
    assert worst is not None
    assert worst.input == 1
    x, w = (tensor[worst.input_index] for tensor in INPUTS)
    s = w.sigmoid()
    assert worst.backward == pytest.approx(float(x * s), rel=1e-5)
    assert worst.finite_difference == pytest.approx(float(x * s * (1 - s)), rel=1e-5)
    text = str(found)
    assert text.startswith("The backward is wrong.")
    assert "eps=1e-06" in text
    assert "atol + rtol" in text


def test_inputs_are_left_alone_and_integers_are_passed_on() -> None:
    table, ids = torch.randn(5, 2), torch.tensor([0, 3, 3])
    before = table.clone()
    assert debugkit.gradcheck(lambda t, i: torch.nn.functional.embedding(i, t), table, ids)
    assert torch.equal(table, before)
    assert table.dtype is torch.float32
    assert table.grad is None


def test_bad_input_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="at least one floating-point tensor"):
        debugkit.gradcheck(lambda i: i, torch.tensor([1]))
    with pytest.raises(ValueError, match="Two calls give different outputs"):
        debugkit.gradcheck(lambda x: x * torch.rand(()), torch.ones(2))

"""Every way a gradient is cut by accident is found, at its line, with the parameters it starves."""

from __future__ import annotations

import linecache
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import debugkit

TOWER = ("vision.0.weight", "vision.0.bias", "vision.2.weight", "vision.2.bias")


def through_detach(v: Tensor) -> Tensor:
    return v.detach()  # cut


def through_data(v: Tensor) -> Tensor:
    return v.data  # cut


def through_detach_in_place(v: Tensor) -> Tensor:
    return v.clone().detach_()  # cut


def through_numpy(v: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(v.detach().cpu().numpy() * 2))  # cut


def through_item(v: Tensor) -> Tensor:
    return torch.stack([torch.tensor([x.item() for x in row]) for row in v])  # cut


def through_tolist(v: Tensor) -> Tensor:
    return torch.tensor(v.tolist())  # cut


def through_torch_tensor(v: Tensor) -> Tensor:
    return torch.tensor(v)  # cut


def through_no_grad_block(v: Tensor) -> Tensor:
    with torch.no_grad():  # cut
        return v * 2


@torch.no_grad()
def decorated(v: Tensor) -> Tensor:
    return v * 2


def through_no_grad_decorator(v: Tensor) -> Tensor:
    return decorated(v)  # cut


def through_set_grad_enabled(v: Tensor) -> Tensor:
    with torch.set_grad_enabled(False):  # cut
        return v + 1


def through_argmax(v: Tensor) -> Tensor:
    return nn.functional.one_hot(v.argmax(-1), 4).float()  # cut


def through_round(v: Tensor) -> Tensor:
    return (v * 4).round() / 4  # cut


def through_floor_division(v: Tensor) -> Tensor:
    return torch.div(v * 8, 2, rounding_mode="floor")  # cut


def through_comparison(v: Tensor) -> Tensor:
    return (v > 0).float()  # cut


def through_integers(v: Tensor) -> Tensor:
    return (v * 100).long().float()  # cut


CUTS = [function for name, function in list(globals().items()) if name.startswith("through_")]


class Policy(nn.Module):
    def __init__(self, bridge: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.vision = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        self.head = nn.Linear(4, 2)
        self.bridge = bridge
        self.logged = 0.0

    def forward(self, x: Tensor) -> Tensor:
        v = self.vision(x)
        self.logged = v.norm().item()
        return self.head(self.bridge(v)).pow(2).mean()


def mean_loss(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)


@pytest.mark.parametrize("bridge", CUTS, ids=lambda f: f.__name__)
def test_each_way_to_cut_a_graph_is_found_at_its_line(bridge: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    found = debugkit.find_graph_cut(Policy(bridge), torch.randn(6, 4), mean_loss)
    assert found.parameters == TOWER
    lines = {linecache.getline(cut.line.file, cut.line.line).strip() for cut in found.cuts if cut.line}
    assert len(lines) == 1, lines
    assert lines.pop().endswith("# cut")
    assert {cut.after_module for cut in found.cuts} == {"vision"}
    assert found.reached == 2


def test_two_cuts_in_series_are_both_named() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = (nn.Linear(3, 3) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.third(self.second(self.first(x).detach()).data).sum()

    found = debugkit.find_graph_cut(Two(), torch.randn(2, 3), mean_loss)
    assert [(cut.operation, cut.after_module, cut.parameters) for cut in found.cuts] == [
        ("detach", "first", ("first.weight", "first.bias")),
        ("data", "second", ("second.weight", "second.bias")),
    ]


def test_a_tower_run_under_no_grad_is_named_by_its_with_line() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vision, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                v = self.vision(x)
                v = v / v.norm()
            return self.head(v).sum()

    (cut,) = debugkit.find_graph_cut(Frozen(), torch.randn(2, 3), mean_loss).cuts
    assert cut.line is not None
    assert linecache.getline(cut.line.file, cut.line.line).strip() == "with torch.no_grad():"
    assert (cut.operation, cut.after_module, cut.numel) == ("no_grad", "vision", 12)


def test_a_cut_behind_a_zero_initialised_head_is_found() -> None:
    model = Policy(through_detach)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    assert debugkit.find_graph_cut(model, torch.randn(6, 4), mean_loss).parameters == TOWER


def test_a_function_whose_backward_returns_nothing_is_found_without_a_line() -> None:
    class NoGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return None

    (cut,) = debugkit.find_graph_cut(Policy(NoGradient.apply), torch.randn(6, 4), mean_loss).cuts
    assert cut.parameters == TOWER
    assert cut.line is None
    assert (cut.operation, cut.after_module) == ("backward of NoGradient", "vision")


def test_reentrant_checkpointing_of_a_frozen_prefix_is_named() -> None:
    class Adapter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)
            self.base.requires_grad_(False)
            nn.init.zeros_(self.b.weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.b(self.a(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.head = Adapter(), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = checkpoint(self.block, x, use_reentrant=True)
            return self.head(x).sum()

    (cut,) = debugkit.find_graph_cut(Net(), torch.randn(2, 4), mean_loss).cuts
    assert cut.operation == "checkpoint(use_reentrant=True)"
    assert cut.line is not None
    assert "use_reentrant=True)" in linecache.getline(cut.line.file, cut.line.line)
    assert cut.parameters == ("block.a.weight", "block.b.weight")


def test_only_what_the_optimizer_holds_is_expected_to_train() -> None:
    model = Policy(through_detach)
    head_only = torch.optim.SGD(model.head.parameters(), lr=0.1)
    assert not debugkit.find_graph_cut(model, torch.randn(6, 4), mean_loss, optimizer=head_only)


def test_the_report_reads_as_a_sentence_and_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    text = str(debugkit.find_graph_cut(Policy(through_detach), torch.randn(6, 4), mean_loss))
    assert text.startswith("The gradient of the loss reaches 2 of 6 trainable parameters.")
    assert "return v.detach()  # cut   (detach)" in text
    assert "4 parameters (76 numbers)" in text

"""Loops that hand forward and backward to `optimizer.step(closure)`, as Lightning does."""

from __future__ import annotations

import torch
from torch import nn

import debugkit


class _Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        return self.second(torch.sqrt((hidden - hidden).abs())).square().mean()


def test_a_nan_is_traced_before_the_step_has_spread_it_into_the_parameters() -> None:
    model = _Root()
    optimizer = torch.optim.AdamW(model.parameters())

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4))
        loss.backward()
        return loss

    with debugkit.watch(model, optimizer, on_finding=lambda _: None) as run:
        optimizer.step(closure)

    assert run.report.by_code["DK202"][0].message.startswith("`SqrtBackward0` returned Inf for a finite gradient")


def test_lbfgs_evaluates_its_closure_as_often_as_without_and_ends_at_the_same_weights() -> None:
    def train(watched: bool) -> tuple[int, torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
        x, y = torch.randn(8, 3), torch.randn(8, 1)
        calls = 0

        def closure() -> torch.Tensor:
            nonlocal calls
            calls += 1
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        if watched:
            with debugkit.watch(model, optimizer) as run:
                for _ in range(3):
                    optimizer.step(closure)
            assert run.report.ok, str(run.report)
        else:
            for _ in range(3):
                optimizer.step(closure)
        return calls, model.weight.detach().clone()

    (calls, weight), (calls_watched, weight_watched) = train(False), train(True)
    assert calls > 3
    assert calls_watched == calls
    assert torch.equal(weight_watched, weight)

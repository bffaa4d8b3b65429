"""A NaN after updates that replaced the weights is a consequence of the learning rate."""

from __future__ import annotations

import torch
from torch import nn

import debugkit


def overflowing(lr: float) -> debugkit.Report:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with debugkit.watch(model, optimizer, on_finding=lambda _finding: None) as run:
        for step in range(12):
            optimizer.zero_grad()
            state = torch.randn(16, 8)
            loss = (model(state) - state[:, :4]).square().mean()
            if lr < 1 and step == 6:
                loss = loss + (model[0].weight * 0).sum().sqrt()  # the derivative is infinite, and 0 times it is NaN
            loss.backward()
            optimizer.step()
    return run.report


def test_a_nan_of_a_rate_far_too_high_is_folded_under_it() -> None:
    report = overflowing(10.0)
    cause = report.by_code["DK206"][0]
    assert cause.caused_by is None
    consequences = [finding for finding in report.findings if finding.code in ("DK201", "DK202", "DK207")]
    assert consequences
    assert {finding.caused_by for finding in consequences} == {"DK206"}


def test_a_nan_of_an_operation_is_not_blamed_on_the_rate() -> None:
    report = overflowing(1e-2)
    assert "DK206" not in report.by_code
    assert report.by_code["DK202"][0].caused_by is None

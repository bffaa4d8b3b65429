"""Running a step again, after a NaN, changes nothing for the loop that goes on."""

from __future__ import annotations

import contextlib

import faulty_models
import torch

import debugkit


def state_after_a_fault(*, watched: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = faulty_models.Distance()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    context = debugkit.watch(model, optimizer, on_finding=lambda _: None, select="DK2")
    with context if watched else contextlib.nullcontext():
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
    assert not watched or context.report.findings
    return torch.get_rng_state(), [value.clone() for value in (*model.buffers(), *(p.grad for p in model.parameters()))]


def test_randomness_buffers_and_gradients_are_those_of_an_unwatched_loop() -> None:
    plain, watched = state_after_a_fault(watched=False), state_after_a_fault(watched=True)
    assert torch.equal(plain[0], watched[0])
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(plain[1], watched[1], strict=True))

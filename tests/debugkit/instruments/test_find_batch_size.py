"""find_batch_size finds the largest size that fits, whatever it starts from, and frees what a failed step left."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import debugkit
from debugkit.finding import NotExamined
from debugkit.instruments.find_batch_size import run_until_out_of_memory, search
from debugkit.measurements.memory_profile import BatchSizeTried
from debugkit.setup import TrainingSetup

EXTENDED_DEPENDS_ON = ("debugkit", "tests/debugkit")


@given(limit=st.integers(1, 5000), start=st.integers(1, 5000), largest=st.integers(1, 10_000))
def test_the_search_ends_at_the_limit_from_any_start(limit: int, start: int, largest: int) -> None:
    start = min(start, largest)
    found = search(lambda n: BatchSizeTried(n, n <= limit, n), start, largest, None)
    assert found.batch_size == min(limit, largest)
    sizes = [one.batch_size for one in found.tried]
    assert len(sizes) == len(set(sizes))
    assert len(sizes) <= 3 * (largest.bit_length() + 1)


def loss(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).pow(2).mean()


@pytest.mark.parametrize("start", [1, 8, 1000])
def test_one_more_sample_would_break_the_budget(start: int) -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    budget = 300_000
    found = debugkit.find_batch_size(lambda n: torch.zeros(n, 32), model, loss, budget_bytes=budget, start=start)
    peaks = [
        debugkit.memory_profile(model, torch.zeros(found.batch_size + more, 32), loss).peak.bytes for more in (0, 1)
    ]
    assert peaks[0] <= budget < peaks[1]
    assert f"Largest batch that fits in 293.0 KiB: {found.batch_size}" in str(found)


def test_a_budget_below_one_sample_is_a_sentence() -> None:
    with pytest.raises(NotExamined, match=r"Not even one sample fits. It needs [\d,]+ bytes and the budget is 10"):
        debugkit.find_batch_size(lambda n: torch.zeros(n, 32), nn.Linear(32, 1), loss, budget_bytes=10)


def test_no_budget_on_the_cpu_is_a_sentence() -> None:
    with pytest.raises(NotExamined, match="give budget_bytes="):
        debugkit.find_batch_size(lambda n: torch.zeros(n, 32), nn.Linear(32, 1), loss)
    with pytest.raises(ValueError, match="start=0"):
        debugkit.find_batch_size(lambda n: torch.zeros(n, 32), nn.Linear(32, 1), loss, budget_bytes=1, start=0)


class Limited(nn.Module):
    """Raises what CUDA raises when a batch is larger than 37, with an activation already made."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)
        self.alive: list[weakref.ref[Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.a(x))
        self.alive.append(weakref.ref(h))
        if len(x) > 37:
            raise torch.OutOfMemoryError("CUDA out of memory (planted)")
        return self.b(h)


@pytest.mark.extended
def test_real_steps_stop_at_out_of_memory_and_everything_is_freed_and_put_back() -> None:
    model = Limited()
    optimizer = torch.optim.AdamW(model.parameters())
    loss(model, torch.randn(5, 4)).backward()
    optimizer.step()
    state, held, rng = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()), torch.get_rng_state()
    found = search(
        lambda n: run_until_out_of_memory(TrainingSetup.of(model, torch.ones(n, 4), loss, optimizer), n),
        100,
        4096,
        None,
    )
    assert found.batch_size == 37
    assert [one.batch_size for one in found.tried] == [100, 50, 25, 37, 43, 40, 38]
    assert "out of memory" in str(found)
    gc.disable()  # freed by what was let go, not by a collection that happens to come
    try:
        assert len(model.alive) > 7
        assert [ref() for ref in model.alive] == [None] * len(model.alive)
    finally:
        gc.enable()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    for index, entries in held["state"].items():
        assert all(torch.equal(optimizer.state_dict()["state"][index][k], v) for k, v in entries.items())
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: real out-of-memory is not tried")
def test_a_real_gpu_is_filled_to_its_limit() -> None:
    torch.cuda.set_per_process_memory_fraction(0.02)
    model = nn.Linear(4096, 4096, device="cuda")
    found = debugkit.find_batch_size(lambda n: torch.zeros(n, 4096, device="cuda"), model, loss)
    assert any(not one.fits for one in found.tried)
    torch.cuda.set_per_process_memory_fraction(1.0)

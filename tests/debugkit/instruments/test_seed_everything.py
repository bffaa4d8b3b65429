"""seed_everything makes draws, orders and workers repeat, and says what it left alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import debugkit


class Draws(Dataset[list[float]]):
    """Each item is what its worker draws from the three global generators."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, random.random(), np.random.rand(), float(torch.rand(()))], dtype=torch.float64)


@pytest.fixture(autouse=True)
def _deterministic_off_again() -> Iterator[None]:
    yield
    debugkit.seed_everything(0)


def draws() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]


def test_the_same_seed_draws_the_same_and_another_seed_does_not() -> None:
    debugkit.seed_everything(1)
    first = draws()
    debugkit.seed_everything(1)
    assert draws() == first
    debugkit.seed_everything(2)
    assert all(a != b for a, b in zip(draws(), first, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_repeats_its_order_and_its_workers_draws(workers: int) -> None:
    def epoch(drawn_before: int) -> torch.Tensor:
        seeded = debugkit.seed_everything(3)
        torch.rand(drawn_before)  # the loader has a generator of its own, so this changes nothing
        return torch.cat(list(DataLoader(Draws(), shuffle=True, num_workers=workers, **seeded.loader())))

    first, again = epoch(5), epoch(5)
    assert torch.equal(first, again)
    assert torch.equal(first[:, 0], epoch(0)[:, 0])
    assert first[:, 0].tolist() != sorted(first[:, 0].tolist())
    assert len(set(first[:, 2].tolist())) == 8


def test_deterministic_is_set_and_unset() -> None:
    assert debugkit.seed_everything(0, deterministic=True).deterministic
    assert torch.are_deterministic_algorithms_enabled()
    debugkit.seed_everything(0)
    assert not torch.are_deterministic_algorithms_enabled()


def test_it_says_what_was_set_and_what_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    seeded = debugkit.seed_everything(5, workers=False)
    assert "numpy.random" in seeded.seeded
    assert seeded.loader() == {}
    assert "PYTHONHASHSEED" in str(seeded)
    assert seeded.to_json()["seed"] == 5
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert debugkit.seed_everything(5).left_alone == ()


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, "7"])
def test_a_seed_out_of_range_is_a_sentence(seed: object) -> None:
    with pytest.raises(ValueError, match="seed must be a whole number from 0 to 4294967295"):
        debugkit.seed_everything(seed)  # type: ignore[arg-type]

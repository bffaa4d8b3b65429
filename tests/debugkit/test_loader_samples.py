"""Reading a loader leaves no trace: training draws afterwards what it would have drawn."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from debugkit.finding import NotExamined
from debugkit.loader_samples import batches_of


class Augmented(Dataset[torch.Tensor]):
    """Holds generators of its own, as augmenting data sets do."""

    def __init__(self) -> None:
        self.numpy, self.python = np.random.default_rng(3), random.Random(3)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, self.numpy.random(), self.python.random(), float(torch.rand(()))])


def shuffling(generator: torch.Generator | None) -> DataLoader[torch.Tensor]:
    return DataLoader(Augmented(), batch_size=2, shuffle=True, generator=generator)


@pytest.mark.parametrize("own_generator", [False, True])
def test_next_epoch_is_the_same_as_if_nothing_had_been_read(own_generator: bool) -> None:
    def epoch(read_before: bool) -> torch.Tensor:
        torch.manual_seed(0)
        loader = shuffling(torch.Generator().manual_seed(1) if own_generator else None)
        if read_before:
            with batches_of(loader) as batches:
                assert len(list(batches)) == 4
        return torch.cat(list(loader))

    assert torch.equal(epoch(read_before=False), epoch(read_before=True))


def test_no_more_is_read_than_asked_for() -> None:
    with batches_of(shuffling(None), most=3) as batches:
        assert len(list(batches)) == 3


def test_an_iterator_is_not_read() -> None:
    once = iter([torch.zeros(2)])
    with pytest.raises(NotExamined, match="is an iterator"), batches_of(once):
        pass
    assert len(list(once)) == 1


def test_lasting_workers_in_use_are_left_alone() -> None:
    loader = DataLoader(
        TensorDataset(torch.zeros(4, 1)), num_workers=1, persistent_workers=True, multiprocessing_context="fork"
    )
    loader._iterator = iter(())  # type: ignore[assignment]  # as while training reads it
    with pytest.raises(NotExamined, match="in use"), batches_of(loader):
        pass
    loader._iterator = None


def test_generators_are_put_back_after_an_exception_too() -> None:
    data, expected = Augmented(), Augmented()[0]
    torch.manual_seed(0)
    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), batches_of(DataLoader(data)) as batches:
        assert len(next(batches)) / 0
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(data[0][:3], expected[:3])

"""Samplers that shuffle once and repeat the order in every epoch."""

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset

DATA = TensorDataset(torch.arange(48.0).reshape(12, 4))


class SeededEachTime(Sampler):
    def __iter__(self):
        yield from torch.randperm(12, generator=torch.Generator().manual_seed(0)).tolist()

    def __len__(self):
        return 12


class IgnoresTheEpoch(SeededEachTime):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch


def _arguments(sampler, **expect):
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randn(2, 4),
        "loss_fn": lambda model, state: model(state).square().mean(),
        "dataloader": DataLoader(DATA, batch_size=2, sampler=sampler),
        "expect": expect,
    }


def generator_recreated_in_each_epoch():
    return _arguments(
        SeededEachTime(), severity="warning", message="The sampler of the train loader (SeededEachTime) gives the same"
    )


def epoch_that_is_ignored():
    return _arguments(IgnoresTheEpoch(), severity="error", message="even after `set_epoch()`")


def set_epoch_was_not_called():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(DATA, batch_size=4, sampler=DistributedSampler(DATA, num_replicas=1, rank=0))

    def loop(model, optimizer):
        for _ in range(3):
            for (state,) in loader:  # DK703
                optimizer.zero_grad()
                model(state).square().mean().backward()
                optimizer.step()

    expect = {"severity": "error", "message": "for epoch 0"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def _program(loop, **expect):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning", **expect}}


def _step(model, optimizer, state):
    optimizer.zero_grad()
    model(state).square().mean().backward()
    optimizer.step()


def generator_of_the_loader_is_seeded_again():
    loader = DataLoader(DATA, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(0))

    def loop(model, optimizer):
        for _ in range(2):
            loader.generator.manual_seed(0)
            for (state,) in loader:  # DK703
                _step(model, optimizer, state)

    return _program(loop, message="1 epoch of 2 had an order that an earlier one had: the first 12 indices")


def each_epoch_begins_with_the_same_seed():
    loader = DataLoader(DATA, batch_size=4, shuffle=True)

    def loop(model, optimizer):
        for _ in range(3):
            torch.manual_seed(7)  # DK703
            for (state,) in loader:
                _step(model, optimizer, state)

    return _program(loop, message="1 epoch of 2 had an order that an earlier one had")


def new_iterator_for_each_step():
    loader = DataLoader(DATA, batch_size=2)

    def loop(model, optimizer):
        for _ in range(6):
            (state,) = next(iter(loader))  # DK703
            _step(model, optimizer, state)

    return _program(loop, message="started again for each of 4 steps and gave the same first batch each time: 2 of 12")


def new_iterator_for_each_micro_batch():
    loader = DataLoader(DATA, batch_size=2)

    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            for _ in range(2):
                (state,) = next(iter(loader))  # DK703
                (model(state).square().mean() / 2).backward()
            optimizer.step()

    return _program(loop)


def cycle_keeps_the_batches_of_the_first_pass():
    loader = DataLoader(DATA, batch_size=3, shuffle=True)

    def loop(model, optimizer):
        batches = itertools.cycle(loader)  # DK703
        for _ in range(9):
            (state,) = next(batches)
            _step(model, optimizer, state)

    return _program(loop, message="on its 4 batches again in the same order: 5 batches came back", certainty="proof")


def cycle_of_a_loader_without_a_name_and_many_epochs():
    def loop(model, optimizer):
        batches = itertools.cycle(DataLoader(DATA, batch_size=2, shuffle=True))  # DK703
        for (state,) in itertools.islice(batches, 80):
            _step(model, optimizer, state.to(torch.float64).float())  # as a copy to a device

    return _program(loop, message="RandomSampler shuffled only the first epoch")


def list_of_a_shuffled_epoch():
    loader = DataLoader(DATA, batch_size=2, shuffle=True)

    def loop(model, optimizer):
        batches = [batch for (batch,) in loader]  # DK703
        for _ in range(3):
            for state in batches:
                optimizer.zero_grad()
                for _ in range(2):
                    (model(state).square().mean() / 2).backward()
                optimizer.step()

    return _program(loop, message="12 batches came back")

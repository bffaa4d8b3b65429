"""Samplers that shuffle once and repeat the order in every epoch."""

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


def generator_made_anew_in_each_epoch():
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

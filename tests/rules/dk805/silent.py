"""Samplers that divide their data, and samplers that need not."""

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler, TensorDataset

DATA = TensorDataset(torch.arange(100.0).reshape(25, 4))  # odd, so that two ranks cannot have equal parts


def _arguments(loader, **expect):
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randn(2, 4),
        "loss_fn": lambda model, state: model(state).square().mean(),
        "dataloader": loader,
        "expect": expect,
    }


def distributed_sampler_that_pads():
    return _arguments(DataLoader(DATA, batch_size=2, sampler=DistributedSampler(DATA, num_replicas=2, rank=1)))


def distributed_sampler_that_drops_the_tail():
    sampler = DistributedSampler(DATA, num_replicas=4, rank=1, shuffle=False, drop_last=True)
    return _arguments(DataLoader(DATA, batch_size=2, sampler=sampler))


class BatchesOfARank(Sampler):
    """As in accelerate: whole batches are distributed round-robin between the processes."""

    def __init__(self, process_index, num_processes):
        self.process_index, self.num_processes = process_index, num_processes

    def __iter__(self):
        for number, batch in enumerate(torch.arange(24).split(2)):
            if number % self.num_processes == self.process_index:
                yield batch.tolist()

    def __len__(self):
        return 6


def batches_that_go_round():
    return _arguments(DataLoader(DATA, batch_sampler=BatchesOfARank(1, 2)))


class OwnGenerator(Sampler):
    def __init__(self, rank, world_size):
        self.rank, self.world_size = rank, world_size
        self.generator = torch.Generator().manual_seed(3)

    def __iter__(self):
        order = torch.randperm(25, generator=self.generator)
        yield from order[self.rank :: self.world_size].tolist()

    def __len__(self):
        return 12


def generator_of_its_own():
    return _arguments(DataLoader(DATA, batch_size=2, sampler=OwnGenerator(0, 2)))


class WorkedOutBefore(Sampler):
    def __init__(self, rank, num_replicas):
        self.rank, self.num_replicas = rank, num_replicas
        self.indices = list(range(rank, 25, num_replicas))

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


def part_worked_out_when_made():
    loader = DataLoader(DATA, batch_size=2, sampler=WorkedOutBefore(1, 2))
    return _arguments(loader, not_examined="whose indices can be read")


def one_process():
    return _arguments(DataLoader(DATA, batch_size=2, shuffle=True), not_examined="several ranks")


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DATA)


def stream():
    return _arguments(DataLoader(Stream(), batch_size=2), not_examined="several ranks")


class FullRounds(Sampler):
    """Rounds of a full batch for every rank; what is left over is left out of this epoch."""

    def __init__(self, rank, world_size, batch_size=4):
        self.rank, self.world_size, self.batch_size, self.epoch = rank, world_size, batch_size, 0

    def __iter__(self):
        order = torch.randperm(25, generator=torch.Generator().manual_seed(self.epoch))
        batches = order[: len(self) * self.batch_size * self.world_size].split(self.batch_size)
        yield from (batch.tolist() for batch in batches[self.rank :: self.world_size])

    def __len__(self):
        return 25 // (self.batch_size * self.world_size)


def full_batches_for_every_rank():
    """One round of 4 × 4 samples, and nine that are left out."""
    return _arguments(DataLoader(DATA, batch_sampler=FullRounds(0, 4)))

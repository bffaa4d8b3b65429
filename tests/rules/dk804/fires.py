"""Two ranks that do not make the same calls. The group's time-out is two seconds."""

import time

import torch
import torch.distributed as dist
from torch import nn
from two_ranks import two_ranks

import debugkit


def _prepare():
    model = nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _program(calls, **expect):
    """Both ranks call `calls(rank)`; rank 0 does not come through."""

    def beside(model, optimizer):
        with debugkit.watch(model, optimizer, select="DK804"):
            try:
                calls(1)
            except RuntimeError:
                time.sleep(20)  # a hang is no hang where the other process has gone

    (model, optimizer), _ = two_ranks(_prepare, beside, timeout_s=2)
    return {
        "model": model,
        "optimizer": optimizer,
        "loop": lambda model, optimizer: calls(0),
        "raises": RuntimeError,
        "expect": {"severity": "error", **expect},
    }


def rank_that_is_elsewhere():
    """It evaluates, in a branch of its own."""

    def calls(rank):
        dist.barrier()
        if rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            time.sleep(20)  # DK804

    return _program(calls, message="rank 1 never came and stands at fires.py:")


def two_operations():
    def calls(rank):
        if rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.barrier()  # DK804

    return _program(calls, message="is not the same on all ranks: rank 0 called all_reduce of float32 [3]")


def two_shapes():
    """A last batch that is shorter on one rank. gloo lets rank 0 go on with what it got."""

    def calls(rank):
        if rank == 0:
            dist.all_reduce(torch.ones(2))
        else:
            dist.all_reduce(torch.ones(3))  # DK804
        dist.barrier()

    return _program(calls, message="rank 1 called all_reduce of float32 [3]")


def backward_that_others_are_past():
    """Rank 1's batch has no image: it leaves its backward while rank 0 waits, and its next forward raises."""
    tower, head = nn.Linear(3, 3), nn.Linear(3, 2)

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower, self.head = tower, head

        def forward(self, state, has_image):
            return self.head(self.tower(state) if has_image else state)

    def prepare():
        model = nn.parallel.DistributedDataParallel(Policy())
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def train(model, optimizer, rank):
        for _ in range(2):
            optimizer.zero_grad()
            out = model(torch.ones(4, 3), has_image=rank == 0)  # DK804
            out.mean().backward()
            optimizer.step()

    def beside(model, optimizer):
        with debugkit.watch(model, optimizer, select="DK804"):
            train(model, optimizer, 1)

    def beside_and_stay(model, optimizer):
        try:
            beside(model, optimizer)
        except RuntimeError:
            time.sleep(20)

    (model, optimizer), _ = two_ranks(prepare, beside_and_stay, timeout_s=2)
    return {
        "model": model,
        "optimizer": optimizer,
        "loop": lambda model, optimizer: train(model, optimizer, 0),
        "raises": RuntimeError,
        "expect": {"message": "rank 1 is past it and raised RuntimeError: Expected to have finished reduction"},
    }

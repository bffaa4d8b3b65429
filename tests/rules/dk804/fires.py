"""Two ranks that do not make the same calls; a call that both ranks began times out after two seconds."""

import time

import torch
import torch.distributed as dist
from torch import nn

import debugkit
from two_ranks import LIMIT_S, meet_and_hurry, two_ranks


def _prepare():
    model = nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _program(calls, **expect):
    """Both ranks call `calls(rank)`; rank 0 does not return from it."""

    def beside(model, optimizer):
        with debugkit.watch(model, optimizer, select="DK804"):
            meet_and_hurry()
            try:
                calls(1)
            except RuntimeError:
                time.sleep(LIMIT_S)  # rank 0 hangs only while this process exists

    def loop(model, optimizer):
        meet_and_hurry()
        calls(0)

    (model, optimizer), _ = two_ranks(_prepare, beside)
    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "raises": RuntimeError,
        "expect": {"severity": "error", **expect},
    }


def rank_that_is_elsewhere():
    """Rank 1 evaluates in a separate branch."""

    def calls(rank):
        if rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            time.sleep(LIMIT_S)  # DK804

    return _program(calls, message="rank 1 never made this call and is at `fires.py:")


def two_operations():
    def calls(rank):
        if rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.barrier()  # DK804

    return _program(calls, message="is not the same on all ranks: rank 0 called `all_reduce` of float32 [3]")


def two_shapes():
    """The last batch is shorter on one rank. With gloo, rank 0 continues with wrong values."""

    def calls(rank):
        if rank == 0:
            dist.all_reduce(torch.ones(2))
        else:
            dist.all_reduce(torch.ones(3))  # DK804
        dist.barrier()

    return _program(calls, message="rank 1 called `all_reduce` of float32 [3]")


def backward_that_others_are_past():
    """Rank 1's batch has no image: its backward ends while rank 0 waits in its own, and its next forward raises."""
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
        meet_and_hurry()
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
            time.sleep(LIMIT_S)

    (model, optimizer), _ = two_ranks(prepare, beside_and_stay)
    return {
        "model": model,
        "optimizer": optimizer,
        "loop": lambda model, optimizer: train(model, optimizer, 0),
        "raises": RuntimeError,
        "expect": {
            "message": "rank 1 has finished this call and raised RuntimeError: Expected to have finished reduction"
        },
    }

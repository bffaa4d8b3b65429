"""Two ranks that make the same calls, or calls that may differ."""

import time

import torch
import torch.distributed as dist
from torch import nn

import debugkit
from two_ranks import alone, leave, two_ranks


def _prepare():
    model = nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _program(calls, **more):
    def train(model, optimizer, rank):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).mean().backward()
            calls(rank)
            optimizer.step()

    def beside(model, optimizer):
        with debugkit.watch(model, optimizer, select="DK804"):
            train(model, optimizer, 1)

    (model, optimizer), join = two_ranks(_prepare, beside)

    def loop(model, optimizer):
        train(model, optimizer, 0)
        assert join() == 0

    return {"model": model, "optimizer": optimizer, "loop": loop, **more}


def same_calls():
    def calls(rank):
        dist.all_reduce(torch.ones(3))
        found = [None, None]
        dist.all_gather_object(found, {"rank": rank})
        dist.broadcast(torch.ones(2), src=0)
        dist.barrier()

    return _program(calls)


def rank_that_is_slow():
    def calls(rank):
        if rank == 1:
            time.sleep(0.8)  # only this rank writes the checkpoint
        dist.barrier()

    return _program(calls)


def group_of_one_rank():
    """Calls of a subgroup are compared only within the subgroup."""

    def calls(rank):
        groups = [dist.new_group([0]), dist.new_group([1])]
        if rank == 0:
            dist.all_reduce(torch.ones(2), group=groups[0])
        dist.all_reduce(torch.ones(2))

    return _program(calls)


def gather_of_different_kinds():
    """Only the receiving rank passes a list."""

    def calls(rank):
        dist.gather(torch.ones(2), [torch.ones(2), torch.ones(2)] if rank == 0 else None, dst=0)

    return _program(calls)


def exception_of_another_kind():
    """The loop raises while no collective is running."""
    alone()
    model, optimizer = _prepare()

    def loop(model, optimizer):
        dist.all_reduce(torch.ones(3))
        model(torch.ones(4, 3)).mean().backward()
        optimizer.step()
        leave()
        raise ValueError("the loader is broken")

    return {"model": model, "optimizer": optimizer, "loop": loop, "raises": ValueError}

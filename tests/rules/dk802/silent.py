"""Two ranks that stay equal, each training on its own data."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import debugkit
from two_ranks import alone, leave, two_ranks


def _policy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))


def _prepare():
    model = DistributedDataParallel(_policy())
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def _program(step, prepare=_prepare, watched_on_both=True, **expect):
    def train(model, optimizer, rank):
        torch.manual_seed(rank)
        for number in range(4):
            optimizer.zero_grad()
            step(model, optimizer, rank, number)
            optimizer.step()

    def beside(model, optimizer):
        if not watched_on_both:
            train(model, optimizer, rank=1)
            return
        with debugkit.watch(model, optimizer, select="DK802"):
            train(model, optimizer, rank=1)

    (model, optimizer), join = two_ranks(prepare, beside)

    def loop(model, optimizer):
        train(model, optimizer, rank=0)
        assert join() == 0

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def _step(model, optimizer, rank, number):
    model(torch.randn(4, 3)).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def running_statistics_differ():
    """The BatchNorm of each rank has seen other data; DDP synchronises its buffers at the next forward."""
    return _program(_step)


def accumulation():
    def step(model, optimizer, rank, number):
        with model.no_sync():
            model(torch.randn(4, 3)).square().mean().backward()
        model(torch.randn(4, 3)).square().mean().backward()

    return _program(step)


def part_that_ddp_was_told_to_ignore():
    """Each rank has its own adapter."""

    def prepare():
        model = _policy()
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["3.bias"])
        model = DistributedDataParallel(model)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def step(model, optimizer, rank, number):
        model(torch.randn(4, 3)).square().mean().backward()

    return _program(step, prepare)


def watched_on_one_rank_only():
    """The probe does not wait for the other rank, and the rule reports that nothing was compared."""
    return _program(_step, watched_on_both=False, not_examined="enter watch() on every rank")


def one_process():
    alone()
    model, optimizer = _prepare()

    def loop(model, optimizer):
        _step(model, optimizer, 0, 0)
        optimizer.step()
        leave()

    expect = {"not_examined": "no other ranks"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}

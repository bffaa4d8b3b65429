"""Two ranks whose parameters diverge."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import debugkit
from two_ranks import two_ranks


def _prepare():
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _program(step, prepare=_prepare, **expect):
    """Both ranks run `step(model, optimizer, rank, number)` four times, each under its own watch()."""

    def train(model, optimizer, rank):
        torch.manual_seed(rank)
        for number in range(4):
            optimizer.zero_grad()
            step(model, optimizer, rank, number)
            optimizer.step()

    def beside(model, optimizer):
        with debugkit.watch(model, optimizer, select="DK802"):
            train(model, optimizer, rank=1)

    (model, optimizer), join = two_ranks(prepare, beside)

    def loop(model, optimizer):
        train(model, optimizer, rank=0)
        assert join() == 0

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def one_rank_clips():
    """Rank 0 clips from the third step on."""

    def step(model, optimizer, rank, number):
        model(torch.randn(4, 3)).square().mean().backward()
        if rank == 0 and number >= 2:
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

    return _program(step, parameter="module.0.weight", message="After step 2, ", severity="error")


def wrapper_bypassed():
    def step(model, optimizer, rank, number):
        model.module(torch.randn(4, 3)).square().mean().backward()

    return _program(step, message="After step 0", severity="error")


def head_changed_on_one_rank():
    """The action head is changed on rank 0 after DDP has copied the weights to the other ranks."""

    def step(model, optimizer, rank, number):
        if rank == 0 and number == 1:
            nn.init.zeros_(model.module[2].bias)
        model(torch.randn(4, 3)).square().mean().backward()

    return _program(step, message="After step 1")

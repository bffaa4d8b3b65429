"""Loops that train the inner module and bypass the wrapper."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from two_ranks import alone, leave


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, state):
        return self.head(self.body(state))

    def loss(self, state):
        return self.head(self.body(state)).square().mean()  # DK803


def _train(loss, watched="wrapper", **expect):
    alone()
    inner = Policy()
    wrapper = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)

    def loop(model, optimizer):
        try:
            for _ in range(3):
                optimizer.zero_grad()
                loss(wrapper).backward()
                optimizer.step()
        finally:
            leave()

    model = wrapper if watched == "wrapper" else inner
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "error", **expect}}


def _bare(wrapper):
    return wrapper.module(torch.randn(4, 3)).square().mean()  # DK803


def bare_module_is_called():
    return _train(_bare, module="module", message="not averaged over ranks")


def bare_module_is_watched_too():
    """Only the inner module is watched; its wrapper exists elsewhere."""
    return _train(_bare, watched="inner", module="", message="The module inside DistributedDataParallel")


def method_of_the_bare_module():
    return _train(lambda wrapper: wrapper.module.loss(torch.randn(4, 3)), module="module.head")


def found_before_training():
    alone()
    model = DistributedDataParallel(Policy())
    return {
        "model": model,
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model.module(batch).square().mean(),  # DK803
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "expect": {"module": "module"},
    }

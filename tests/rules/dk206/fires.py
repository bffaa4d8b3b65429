"""Learning rates that replace the weights, or hardly change them."""

import itertools

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))


def _train(model, optimizer, steps=30, factor=1.0):
    for _ in range(steps):
        optimizer.zero_grad()
        state = torch.randn(16, 8)
        ((model(state) - state[:, :4]).square().mean() * factor).backward()
        optimizer.step()


def sgd_at_the_edge_of_stability():
    """The weights nearly change sign in each step, but the loss still falls."""
    model = nn.Linear(8, 4, bias=False)

    def loop(model, optimizer):
        for _ in range(30):
            optimizer.zero_grad()
            model(torch.randn(512, 8)).square().mean().backward()
            optimizer.step()

    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=3.4),
        "loop": loop,
        "expect": {"severity": "warning", "parameter": "weight", "message": "have been too large for 5 steps in a row"},
    }


def sgd_with_the_rate_of_adam_and_a_loss_that_is_averaged_twice():
    model = _policy()
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=1e-6),
        "loop": lambda model, optimizer: _train(model, optimizer, factor=1 / 64),
        "expect": {"message": "have been too small for 5 steps in a row"},
    }


def one_group_only():
    model = _policy()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 3e-11}]
    optimizer = torch.optim.AdamW(groups)  # DK206
    optimizer.param_groups[0]["lr"] = 3e-11
    return {
        "model": model,
        "optimizer": optimizer,
        "loop": _train,
        "expect": {"message": "by AdamW have been too small"},
    }


def _classify(model, optimizer, steps, scale=1.0):
    teacher = torch.randn(16, 5)
    for _ in range(steps):
        state = torch.randn(32, 16)
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(state), (state @ teacher).argmax(1)) * scale).backward()
        optimizer.step()


def _deep():
    widths = (16, 64, 64, 64)
    hidden = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(64, 5))


def adam_at_a_tenth():
    """A rate of SGD given to Adam: the weights are replaced in the first steps."""
    model = _deep()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)  # DK206
    expect = {"message": "times the weight's size in the first step, and the loss rose from"}
    return {"model": model, "optimizer": optimizer, "loop": lambda m, o: _classify(m, o, 60), "expect": expect}


def sgd_at_a_rate_of_adam():
    """No loss is averaged twice: the rate alone is a thousand times too low."""
    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def loop(model, optimizer):
        for _ in range(60):
            state = torch.randn(32, 6)
            optimizer.zero_grad()
            (model(state)[:, 0] - state.sum(1)).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "They promise to lower the"}}


def loss_that_overflows_in_the_first_steps():
    model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    expect = {"message": "and the loss rose from 91.4 to"}
    return {"model": model, "optimizer": optimizer, "loop": lambda m, o: _train(m, o, 12, 100.0), "expect": expect}


def readout_that_grows_while_nothing_rises_is_only_information():
    """One matrix of three, with one output and small weights."""
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    with torch.no_grad():
        model[4].weight.mul_(0.1)

    def loop(model, optimizer):
        for _ in range(40):
            state = torch.randn(64, 16)
            optimizer.zero_grad()
            (model(state) - torch.sin(state.sum(1, keepdim=True))).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    groups = [{"params": model[:4].parameters()}, {"params": model[4].parameters(), "lr": 0.3}]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.5)
    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "expect": {"severity": "info", "parameter": "4.weight", "message": "have been too large for 5 steps in a row"},
    }

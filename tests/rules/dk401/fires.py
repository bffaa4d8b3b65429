"""Policies whose `unnormalise` is not the inverse of `normalise`."""

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    """Unnormalises with the standard deviation alone."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("mean", torch.tensor([0.1, 0.0, -0.3]))
        self.register_buffer("std", torch.tensor([2.0, 0.5, 1.0]))

    def normalize(self, action):
        return (action - self.mean) / self.std

    def unnormalize(self, action):  # DK401
        return action * self.std

    def forward(self, state, action):
        return {"loss": (self.head(state) - self.normalize(action)).square().mean()}


class Statistics:
    """A plain object, not a module; a policy holds it."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    def normalise(self, action):
        return 2 * (action - self.low) / (self.high - self.low) - 1

    def unnormalise(self, action):  # DK401
        return (action + 1) / 2 * self.high + self.low


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = nn.Linear(4, 3)
        self.decoder.statistics = Statistics(-torch.ones(3), torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, state, action):
        return {"loss": (self.decoder(state) - action).square().mean()}


def _batch():
    return {"state": torch.randn(6, 4), "action": torch.randn(6, 5, 3)}


def _chunks(model, batch):
    return model(batch["state"], batch["action"].mean(1))["loss"]


def mean_forgotten():
    expect = {"module": "", "severity": "error", "message": "action"}
    return {"model": Policy(), "batch": _batch(), "loss_fn": _chunks, "expect": expect}


def on_an_object_that_a_submodule_holds():
    return {"model": Holder(), "batch": _batch(), "loss_fn": _chunks, "expect": {"module": "decoder"}}


def declared_pair_that_halves():
    def halve(action):  # DK401
        return action / 2

    return {
        "model": nn.Linear(4, 3),
        "batch": (torch.randn(5, 4), torch.randn(5, 3)),
        "loss_fn": lambda model, batch: (model(batch[0]) - batch[1]).abs().mean(),
        "declare": debugkit.Declare(normaliser=(lambda action: action, halve), target="1"),
        "expect": {"message": "gain of 0.5"},
    }


def standard_deviation_of_another_dataset_without_any_batch():
    class Serving(Policy):
        def unnormalize(self, action):  # DK401
            return action * self.std * 0.3 + self.mean

    return {"model": Serving(), "expect": {"message": "gain of 0.3"}}

"""Operations whose results are used, or that do something besides."""

import contextlib

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, state):
        return self.head(torch.tanh(self.body(state)))


def _batch():
    return {"state": torch.randn(8, 6), "action": torch.rand(8, 3)}


def _program(loss_fn, model=Policy):
    return {"model": model(), "batch": _batch(), "loss_fn": loss_fn}


def operations_in_place():
    def loss_fn(model, batch):
        state = batch["state"].clone()
        state.clamp_(-1, 1)
        torch.clamp(state, -1, 1, out=state)
        nn.functional.relu(state, inplace=True)
        return (model(state) - batch["action"]).square().mean()

    return _program(loss_fn)


def results_that_are_used():
    def loss_fn(model, batch):
        state = batch["state"].clamp(-1, 1)
        _ = state.clamp(0, 1)
        parts = [state.clamp(0, 1), state.to(torch.float32)]
        if state.gt(0).any():
            state = sum(parts)
        print(state.abs(), end="", file=_Nowhere())
        return (model(state) - batch["action"]).square().mean()

    return _program(loss_fn)


class _Nowhere:
    def write(self, text):
        return len(text)


def what_they_do_besides():
    def loss_fn(model, batch):
        state = batch["state"]
        torch.zeros(1).to("cpu")  # starts a device
        with contextlib.suppress(RuntimeError):
            state.expand(8, 6)  # a test of the shape
        loss = (model(state) - batch["action"]).square().mean()
        loss.item()
        loss.cpu()
        return loss

    return _program(loss_fn)


def a_module_whose_hook_keeps_the_result():
    class Features(Policy):
        def __init__(self):
            super().__init__()
            self.kept = {}
            self.body.register_forward_hook(lambda _module, _args, output: self.kept.update(body=output))

        def forward(self, state):
            self.body(state)
            return self.head(torch.tanh(self.kept.pop("body")))

    def loss_fn(model, batch):
        return (model(batch["state"]) - batch["action"]).square().mean()

    return _program(loss_fn, Features)


def a_library_that_drops_it():
    """`torch.nn` is not the program: the line above it is a call of a module."""

    class Dropping(Policy):
        def forward(self, state):
            nn.functional.normalize(state)
            return super().forward(state)

    def loss_fn(model, batch):
        return (model(batch["state"]) - batch["action"]).square().mean()

    return _program(loss_fn, Dropping)

"""Weights that are kept, and loads that load something."""

import copy
import io

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.head = nn.Linear(8, 2)

    def forward(self, state):
        return self.head(self.tower(state))


def _step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()


def _program(loop, **more):
    model = Policy()
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "loop": loop, **more}


def copied_before_training_goes_on():
    def loop(model, optimizer):
        _step(model, optimizer)
        best = copy.deepcopy(model.state_dict())
        for _ in range(2):
            _step(model, optimizer)
        model.load_state_dict(best)

    return _program(loop)


def each_tensor_cloned():
    def loop(model, optimizer):
        _step(model, optimizer)
        best = {name: value.clone() for name, value in model.state_dict().items()}
        for _ in range(2):
            _step(model, optimizer)
        model.load_state_dict(best)

    return _program(loop)


def saved_to_a_file():
    def loop(model, optimizer):
        _step(model, optimizer)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        _step(model, optimizer)
        file.seek(0)
        model.load_state_dict(torch.load(file))

    return _program(loop)


def loaded_before_anything_changed():
    """A round trip, as when the entries of a checkpoint are put into the model's own state dict."""

    def loop(model, optimizer):
        for _ in range(2):
            _step(model, optimizer)
            state = model.state_dict()
            state.update({name: value.clone() for name, value in Policy().head.state_dict(prefix="head.").items()})
            model.load_state_dict(state)
            model.load_state_dict(model.state_dict())

    return _program(loop)


def entries_filled_in_place():
    """The own tensors are loaded, after they were written: what is loaded is what was meant."""

    def loop(model, optimizer):
        _step(model, optimizer)
        state = model.state_dict()
        for name, value in Policy().state_dict().items():
            state[name].copy_(value)
        model.load_state_dict(state)
        _step(model, optimizer)

    return _program(loop)


def average_of_two_clients_with_own_normalisation():
    """The entries that stay are references on purpose: the client keeps its own statistics."""

    def loop(model, optimizer):
        other = Policy()
        shared = model.state_dict()
        for _ in range(2):
            _step(model, optimizer)
            for name, value in other.head.state_dict(prefix="head.").items():
                shared[name] = (value + model.get_parameter(name).detach()) / 2
            model.load_state_dict(shared)

    return _program(loop)


def weights_of_another_model():
    """A target network follows: it copies the weights of the moment, and the dict is made only once."""
    target = Policy().requires_grad_(False)

    def loop(model, optimizer):
        weights = model.state_dict()
        for _ in range(3):
            _step(model, optimizer)
            target.load_state_dict(weights)

    return _program(loop)


def nothing_was_loaded():
    def loop(model, optimizer):
        model.state_dict()
        _step(model, optimizer)

    return _program(loop, expect={"not_examined": "No state dict was loaded"})

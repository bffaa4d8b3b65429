"""Loops that seed with care, and loaders that draw from their own generators."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def _program(loop, **expect):
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def _step(model, optimizer, state):
    optimizer.zero_grad()
    model(state).square().mean().backward()
    optimizer.step()


def seeds_that_depend_on_the_epoch():
    def loop(model, optimizer):
        for epoch in range(4):
            torch.manual_seed(1000 + epoch)
            random.seed(epoch)
            np.random.seed(epoch)
            for _ in range(4):
                _step(model, optimizer, torch.randn(8, 3) + random.random() + float(np.random.rand()))

    return _program(loop)


def evaluation_in_a_forked_state():
    def loop(model, optimizer):
        for _ in range(4):
            for _ in range(4):
                _step(model, optimizer, torch.randn(8, 3))
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(0)
                model(torch.randn(8, 3))

    return _program(loop)


def perturbation_drawn_twice_in_a_step():
    """The same noise is added and taken away again, from a seed that is new in each step."""

    def loop(model, optimizer):
        for _ in range(12):
            seed = int(torch.randint(10**6, ()))
            state = torch.get_rng_state()
            for sign in (1.0, -1.0):
                torch.manual_seed(seed)
                for parameter in model.parameters():
                    parameter.data += sign * 1e-3 * torch.randn_like(parameter)
            torch.set_rng_state(state)
            _step(model, optimizer, torch.randn(8, 3))

    return _program(loop)


def one_rollback_to_a_checkpoint():
    def loop(model, optimizer):
        for _ in range(3):
            _step(model, optimizer, torch.randn(8, 3))
        saved = torch.get_rng_state()
        _step(model, optimizer, torch.randn(8, 3))
        torch.set_rng_state(saved)
        _step(model, optimizer, torch.randn(8, 3))
        torch.manual_seed(5)
        for _ in range(6):
            _step(model, optimizer, torch.randn(8, 3))

    return _program(loop)


def nothing_drawn():
    model = nn.Linear(3, 2)

    def loop(model, optimizer):
        for _ in range(8):
            torch.manual_seed(0)
            _step(model, optimizer, torch.ones(8, 3))

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"not_examined": "draws no random numbers"}}


def three_steps_only():
    def loop(model, optimizer):
        for _ in range(3):
            _step(model, optimizer, torch.randn(8, 3))

    return _program(loop, not_examined="3 of 4 steps")


def shuffled_loader():
    return {
        "model": nn.Linear(3, 2),
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "dataloader": DataLoader(TensorDataset(torch.randn(16, 3)), batch_size=4, shuffle=True),
    }

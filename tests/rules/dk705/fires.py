"""Loops and data sets that seed the global generators again."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def _program(loop, **expect):
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning", **expect}}


def _step(model, optimizer, state):
    optimizer.zero_grad()
    model(state).square().mean().backward()
    optimizer.step()


def evaluation_that_seeds_and_does_not_restore():
    def loop(model, optimizer):
        for _ in range(3):
            for _ in range(4):
                _step(model, optimizer, torch.randn(8, 3))
            torch.manual_seed(0)  # DK705
            with torch.no_grad():
                model(torch.randn(8, 3))

    return _program(loop, message="The random state of torch after step 8 was already there after step 4")


def augmentation_seeded_in_each_epoch():
    def loop(model, optimizer):
        for _ in range(3):
            np.random.seed(42)  # DK705
            for _ in range(4):
                _step(model, optimizer, torch.from_numpy(np.random.rand(8, 3).astype(np.float32)))

    return _program(loop, message="The random state of NumPy after step 4 was already there after step 0")


def long_epochs_that_are_seeded_each():
    def loop(model, optimizer):
        for _ in range(4):
            random.seed(7)  # DK705
            for _ in range(80):
                _step(model, optimizer, torch.full((4, 3), random.random()))

    return _program(loop, message="Python's `random`")


def loss_that_seeds_its_noise():
    def diffusion_loss(model, state):
        torch.manual_seed(42)  # DK705
        noise = torch.randn_like(state)
        time = torch.rand(len(state), 1)
        return (model(state * (1 - time) + noise * time) - noise[:, :2]).square().mean()

    def loop(model, optimizer):
        data = torch.arange(24.0).reshape(8, 3)
        for _ in range(6):
            optimizer.zero_grad()
            diffusion_loss(model, data).backward()
            optimizer.step()

    return _program(loop, message="Each of 4 consecutive steps sets the random state of torch with the seed 42")


def augmentation_seeded_in_each_step():
    def augmented(sample, seed):
        np.random.seed(seed)  # DK705
        return sample + torch.from_numpy(np.random.rand(*sample.shape).astype(np.float32))

    def loop(model, optimizer):
        for step in range(8):
            _step(model, optimizer, augmented(torch.full((8, 3), float(step)), seed=0))

    return _program(loop, message="NumPy with the seed 0")


def validation_in_each_step_that_fixes_the_dropout():
    def loop(model, optimizer):
        for step in range(6):
            with torch.inference_mode():
                torch.manual_seed(1)  # DK705
                model(torch.randn(8, 3))
            _step(model, optimizer, torch.full((8, 3), float(step)))

    return _program(loop, message="then draws for its loss")


def everything_seeded_in_each_step_of_two_optimizers():
    def set_seed():
        random.seed(3)
        torch.manual_seed(3)  # DK705

    def loop(model, optimizer):
        critic = nn.Linear(2, 1)
        other = torch.optim.SGD(critic.parameters(), lr=1e-3)
        for step in range(6):
            set_seed()
            given = torch.randn(8, 3) + step
            other.zero_grad()
            critic(model(given).detach()).mean().backward()
            other.step()
            _step(model, optimizer, given)

    return _program(loop)


class _Frames(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        torch.manual_seed(index)
        return torch.randn(3)


def data_set_that_seeds_for_each_sample():
    model = nn.Linear(3, 2)
    return {
        "model": model,
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "dataloader": DataLoader(_Frames(), batch_size=4),
        "expect": {"message": "Reading the train loader seeds torch"},
    }

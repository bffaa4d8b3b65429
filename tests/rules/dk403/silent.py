"""Trajectories without a lag, and data from which no lag can be computed."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def _program(state, action, **expect):
    return {
        "model": nn.Linear(2, 2),
        "batch": {"state": state, "action": action},
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"]).abs().mean(),
        "expect": expect,
    }


def _in_step(action):
    return torch.cat([torch.zeros(len(action), 1, 2), action.cumsum(1)[:, :-1]], dim=1)


def actions_that_move_the_state_at_once():
    action = torch.randn(6, 30, 2)
    return _program(_in_step(action), action)


def slow_motion_that_looks_alike_at_all_shifts():
    time = torch.linspace(0, 1, 40)
    action = torch.stack([time.sin(), time.cos()], dim=-1).expand(6, -1, -1) + torch.zeros(6, 40, 2)
    return _program(_in_step(action).roll(1, dims=1), action)


def states_that_have_nothing_to_do_with_actions():
    return _program(torch.randn(6, 30, 2), torch.randn(6, 30, 2))


def robot_that_stands_still():
    return _program(torch.zeros(6, 30, 2), torch.randn(6, 30, 2))


def independent_frames():
    return _program(torch.randn(6, 2), torch.randn(6, 2), not_examined="no 32 consecutive steps")


def loader_without_episodes():
    loader = DataLoader(TensorDataset(torch.randn(40, 2), torch.randn(40, 2)), batch_size=4)
    return {
        "model": nn.Linear(2, 2),
        "dataloader": loader,
        "loss_fn": lambda model, batch: (model(batch[0]) - batch[1]).abs().mean(),
        "expect": {"not_examined": "no 32 consecutive steps"},
    }

"""Trajectories whose actions are several steps off."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def _trajectories(lag, size=6, steps=30):
    """The state changes by the action of `lag` steps earlier."""
    action = torch.randn(size, steps, 2)
    change = action.roll(lag, dims=1)
    state = torch.cat([torch.zeros(size, 1, 2), change.cumsum(1)[:, :-1]], dim=1)
    return state, action


def _program(state, action, message):
    return {
        "model": nn.Linear(2, 2),
        "batch": {"state": state, "action": action},
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"]).abs().mean(),
        "expect": {"severity": "info", "message": message},
    }


def robot_that_answers_two_steps_later():
    return _program(*_trajectories(2), "follows the action 2 steps later")


def actions_stamped_one_step_late():
    return _program(*_trajectories(-1), "moves 1 step before")


def positions_to_go_to_in_a_data_set():
    class Frames(Dataset):
        def __init__(self):
            goal = torch.randn(3, 80, 2).cumsum(1)
            self.state = goal.roll(2, dims=1).flatten(0, 1)  # reaches each goal one step too late
            self.goal = goal.flatten(0, 1)

        def __len__(self):
            return len(self.goal)

        def __getitem__(self, index):  # DK403
            return {
                "observation.state": self.state[index],
                "action": self.goal[index],
                "episode_index": torch.tensor(index // 80),
            }

    return {
        "model": nn.Linear(2, 2),
        "dataloader": DataLoader(Frames(), batch_size=4),
        "loss_fn": lambda model, batch: (model(batch["observation.state"]) - batch["action"]).abs().mean(),
        "expect": {"message": "follows the action 1 step later"},
    }

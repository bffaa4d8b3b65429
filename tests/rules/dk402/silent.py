"""Normalisers that fit their data, normalisers that guard a constant joint, and code that only looks like one."""

import torch
from torch import nn


class Statistics(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def normalize(self, action):
        return (action - self.mean) / self.std


class Policy(nn.Module):
    def __init__(self, statistics):
        super().__init__()
        self.head, self.statistics = nn.Linear(4, 3), statistics

    def forward(self, state, action):
        return {"loss": (self.head(state) - self.statistics.normalize(action)).abs().mean()}


def _program(statistics, action, **expect):
    return {
        "model": Policy(statistics),
        "batch": {"state": torch.randn(len(action), 4), "action": action},
        "expect": expect,
    }


def statistics_of_the_data():
    return _program(
        Statistics([50.0, 0.0, 0.0], [0.5, 1e-3, 2.0]),
        torch.randn(32, 3) * torch.tensor([0.5, 1e-3, 2]) + torch.tensor([50.0, 0, 0]),
    )


def rare_gripper_events():
    action = torch.randn(128, 3)
    action[:, 2] = 0.0
    action[0, 2] = 12.0
    return _program(Statistics([0.0] * 3, [1.0] * 3), action)


def still_joint_that_is_guarded():
    class Guarded(Statistics):
        def normalize(self, action):
            return (action - self.mean) / torch.where(self.std < 1e-4, 1.0, self.std)

    action = torch.randn(32, 3)
    action[:, 1] = 0.5
    return _program(Guarded([0.0, 0.5, 0.0], [1.0, 0.0, 1.0]), action)


def a_batch_in_which_nothing_moves():
    return _program(Statistics([0.0] * 3, [1.0] * 3), torch.zeros(32, 3))


def few_rows():
    return _program(Statistics([0.0] * 3, [1.0] * 3), torch.full((4, 3), 7.0))


def statistics_kept_for_the_robot_and_not_used_in_training():
    class AtInference(Policy):
        def forward(self, state, action):
            return {"loss": (self.head(state) - action).abs().mean()}

    model = AtInference(Statistics([50.0] * 3, [0.5] * 3))
    return {"model": model, "batch": {"state": torch.randn(32, 4), "action": torch.randn(32, 3)}}


def the_labs_policy():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy as LabsPolicy

    return {"model": LabsPolicy(), "batch": collate(demonstrations(32, 0), range(32))}


def learnt_mean_and_std_of_a_gaussian_head():
    class Gaussian(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.std = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))

        def forward(self, action):
            return {"loss": ((action - self.mean) / (self.std.exp())).square().mean()}

    return {
        "model": Gaussian(),
        "batch": {"action": torch.randn(8, 3)},
        "expect": {"not_examined": "No statistics"},
    }


def batch_norm():
    return {
        "model": nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
        "batch": torch.randn(8, 4),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"not_examined": "No statistics"},
    }

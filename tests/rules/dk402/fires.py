"""Normalisers that divide by zero, or that have the statistics of other data."""

import torch
from torch import nn


class Statistics(nn.Module):
    def __init__(self, mean, std, epsilon=0.0):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))
        self.epsilon = epsilon

    def normalize(self, action):
        return (action - self.mean) / (self.std + self.epsilon)


class Policy(nn.Module):
    def __init__(self, statistics):
        super().__init__()
        self.head, self.statistics = nn.Linear(4, 3), statistics

    def forward(self, state, action):
        target = self.statistics.normalize(action).nan_to_num()
        return {"loss": (self.head(state) - target).abs().mean()}


def _program(statistics, action=None, **expect):
    action = torch.randn(32, 3) if action is None else action
    return {
        "model": Policy(statistics),
        "batch": {"state": torch.randn(len(action), 4), "action": action},
        "expect": {"module": "statistics"} | expect,
    }


def constant_joint():
    action = torch.randn(32, 3)
    action[:, 1] = 0.5
    statistics = Statistics([0.0, 0.5, 0.0], [1.0, 0.0, 1.0])
    return _program(statistics, action, severity="error", message="dimension 1, so normalising gives NaN or Inf")


def constant_joint_with_an_epsilon():
    statistics = Statistics([0.0, 0.5, 0.0], [1.0, 0.0, 1.0], epsilon=1e-8)
    return _program(statistics, severity="warning", message="have no spread in dimension 1.")


def constant_joint_with_an_epsilon_that_stays_constant():
    action = torch.randn(32, 3)
    action[:, 1] = 0.5
    statistics = Statistics([0.0, 0.5, 0.0], [1.0, 0.0, 1.0], epsilon=1e-8)
    return _program(statistics, action, severity="info", message="A constant is added")


def statistics_never_loaded():
    return _program(Statistics([float("inf")] * 3, [float("inf")] * 3), severity="error", message="not finite")


def bounds_without_any_method():
    class Held(Policy):
        def __init__(self):
            super().__init__(nn.Module())
            self.register_buffer("action_min", torch.tensor([-1.0, 0.2, -1.0]))
            self.register_buffer("action_max", torch.tensor([1.0, 0.2, 1.0]))

        def forward(self, state, action):
            return {"loss": (self.head(state) - action).abs().mean()}

    batch = {"state": torch.randn(8, 4), "action": torch.randn(8, 3)}
    return {
        "model": Held(),
        "batch": batch,
        "expect": {"module": "", "message": "`action_min` and `action_max` of the model have"},
    }


def quantiles_of_absolute_actions_on_relative_ones():
    class Quantiles(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("q01", torch.tensor([-1.0, 0.4990, -1.0]))
            self.register_buffer("q99", torch.tensor([1.0, 0.5000, 1.0]))

        def normalize(self, action):
            return 2 * (action - self.q01) / (self.q99 - self.q01) - 1

    return _program(Quantiles(), severity="warning", message="after normalising, dimension 1 has median")


def degrees_in_the_statistics_and_radians_in_the_data():
    action = torch.randn(64, 3) * 0.5
    return _program(Statistics([0.0] * 3, [57.0, 60.0, 50.0]), action, message="do not fit the data")

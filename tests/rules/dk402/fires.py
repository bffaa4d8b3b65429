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


class Keyed(nn.Module):
    """The statistics of each key, without a method that normalises."""

    def __init__(self, state_key="observation_state"):
        super().__init__()
        mean = {"observation_state": torch.tensor([200.0, 90.0, 300.0]), "action": torch.zeros(3)}
        std = {"observation_state": torch.tensor([2.0, 1.0, 3.0]), "action": torch.tensor([0.7, 0.6, 0.8])}
        for key in ("observation_state", "action"):
            self.register_buffer(f"{key}_mean", mean[state_key if key != "action" else key])
            self.register_buffer(f"{key}_std", std[state_key if key != "action" else key])
        self.head = nn.Linear(3, 3)

    def forward(self, state, action):
        state = (state - self.observation_state_mean) / self.observation_state_std  # DK402
        target = (action - self.action_mean) / (self.action_std + 1e-8)
        return {"loss": (self.head(state) - target).square().mean()}


def _of_keys(model, **expect):
    state = torch.tensor([200.0, 90.0, 300.0]) + torch.randn(32, 3) * torch.tensor([2.0, 1.0, 3.0])
    return {"model": model, "batch": {"state": state, "action": torch.randn(32, 3) * 0.7}, "expect": expect}


def statistics_of_another_key():
    message = "`observation_state_mean` and `observation_state_std` do not fit the data: after normalising, dimension 2"
    return _of_keys(Keyed("action"), module="", severity="warning", message=message)


class Bounds(nn.Module):
    def __init__(self, low, high):
        super().__init__()
        self.register_buffer("min", torch.tensor(low))
        self.register_buffer("max", torch.tensor(high))

    def forward(self, x):
        span = (self.max - self.min).clamp(min=1e-4)
        return 2 * (x - self.min.view(1, -1)) / span - 1  # DK402


class ByKey(nn.Module):
    def __init__(self):
        super().__init__()
        bounds = {"state": Bounds([-2.0] * 3, [2.0] * 3), "action": Bounds([-3.0] * 3, [3.0] * 3)}
        self.normalisers, self.head = nn.ModuleDict(bounds), nn.Linear(3, 3)

    def forward(self, state, action):
        error = self.head(self.normalisers["state"](state)) - self.normalisers["action"](action)
        return {"loss": error.abs().mean()}


def bounds_of_another_key_in_a_dict_of_modules():
    return _of_keys(ByKey(), module="normalisers.state", message="`min` and `max` do not fit the data")


class HoldsADict(nn.Module):
    def __init__(self):
        super().__init__()
        self.stats = {"images": {"mean": torch.tensor([0.5, 0.4, 0.3]), "std": torch.tensor([0.2, 0.2, 0.2])}}
        self.head = nn.Linear(3, 3)

    def forward(self, images, action):
        mean, std = (self.stats["images"][name][:, None, None] for name in ("mean", "std"))
        features = images.float().sub_(mean).div_(std)  # DK402
        return {"loss": (self.head(features.mean((2, 3))) - action).abs().mean()}


def raw_images_with_statistics_of_a_dict():
    images = torch.randint(0, 255, (32, 3, 4, 4))
    return {
        "model": HoldsADict(),
        "batch": {"images": images, "action": torch.randn(32, 3)},
        "expect": {"module": "", "message": "`mean` and `std` do not fit the data"},
    }


def _trained(program, steps=9):
    """The same in a loop, which calls `model(**batch)`."""
    model, batch = program["model"], program.pop("batch")
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)

    def loop(model, optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()

    return program | {"optimizer": optimizer, "loop": loop}


def statistics_of_another_key_in_a_loop():
    message = "`observation_state_mean` and `observation_state_std` do not fit the data: after normalising, dimension 2"
    return _trained(_of_keys(Keyed("action"), module="", severity="warning", message=message))


def bounds_of_another_key_in_a_short_loop():
    program = _of_keys(ByKey(), module="normalisers.state", message="`min` and `max` do not fit the data")
    return _trained(program, steps=2)


class Method(Statistics):
    def normalize(self, action):
        return (action - self.mean) / self.std  # DK402


def degrees_in_the_statistics_of_a_method_in_a_loop():
    statistics = Method([0.0] * 3, [57.0, 60.0, 50.0])
    return _trained(_program(statistics, torch.randn(64, 3) * 0.5, message="do not fit the data"))

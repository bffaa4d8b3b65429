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


class Keyed(nn.Module):
    """The statistics of each key, without a method that normalises."""

    def __init__(self, mean=(200.0, 90.0, 300.0), std=(2.0, 1.0, 3.0), prefix="state"):
        super().__init__()
        self.mean, self.std = f"{prefix}_mean", f"{prefix}_std"
        self.register_buffer(self.mean, torch.tensor(mean))
        self.register_buffer(self.std, torch.tensor(std))
        self.register_buffer("action_mean", torch.zeros(3))
        self.register_buffer("action_std", torch.full((3,), 0.7))
        self.head = nn.Linear(3, 3)

    def forward(self, state, action):
        state = (state - getattr(self, self.mean)) / getattr(self, self.std)
        target = (action - self.action_mean) / self.action_std
        return {"loss": (self.head(state) - target).square().mean()}


def _state():
    return torch.tensor([200.0, 90.0, 300.0]) + torch.randn(32, 3) * torch.tensor([2.0, 1.0, 3.0])


def _of_keys(model, state=None):
    state = _state() if state is None else state
    return {"model": model, "batch": {"state": state, "action": torch.randn(*state.shape[:-1], 3) * 0.7}}


def statistics_of_each_key():
    return _of_keys(Keyed())


def a_tensor_of_statistics_for_both_keys():
    model = Keyed((0.0,) * 3, (0.7,) * 3)
    model.action_mean, model.action_std = model.state_mean, model.state_std
    return _of_keys(model, torch.randn(32, 3) * 0.7)


def padded_steps():
    state = _state()[:, None].repeat(1, 4, 1)
    state[:, 3] = 0.0
    return _of_keys(Keyed(), state)


def statistics_that_follow_the_data():
    return _of_keys(Keyed((1.0,) * 3, (1.0,) * 3, prefix="running"))


def statistics_not_computed_yet():
    return _of_keys(Keyed((0.0,) * 3, (1.0,) * 3))


class PredictsRawUnits(Keyed):
    def forward(self, state, action):
        error = (self.head(action) - self.state_mean) / self.state_std - (state - self.state_mean) / self.state_std
        return {"loss": error.square().mean()}


def a_prediction_that_is_normalised_for_the_loss():
    return _of_keys(PredictsRawUnits())


class RadialBasis(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.linspace(0.0, 10.0, 16))
        self.register_buffer("std", torch.full((16,), 0.1))
        self.head = nn.Linear(16, 1)

    def forward(self, distance):
        basis = (-0.5 * ((distance[..., None] - self.mean) / self.std) ** 2).exp()
        return {"loss": self.head(basis).square().mean()}


def distances_to_several_centres():
    return {"model": RadialBasis(), "batch": {"distance": torch.rand(32, 6) * 10}}


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]))
        self.head = nn.Linear(3, 1)

    def forward(self, images):
        images = (images - self.mean.view(1, 3, 1, 1)) / self.std.view(1, 3, 1, 1)
        return {"loss": self.head(images.mean((2, 3))).square().mean()}


def images_with_imagenet_statistics():
    return {"model": Images(), "batch": {"images": torch.rand(8, 3, 6, 6)}}


class Bounds(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("action_q01", torch.tensor([-0.1, 20.0]))
        self.register_buffer("action_q99", torch.tensor([0.1, 40.0]))
        self.head = nn.Linear(2, 2)

    def forward(self, action):
        target = (action - self.action_q01) / (self.action_q99 - self.action_q01) * 2 - 1
        return {"loss": (self.head(target) - target).abs().mean()}


def quantiles_of_the_data():
    action = torch.rand(32, 2) * torch.tensor([0.2, 20.0]) + torch.tensor([-0.1, 20.0])
    return {"model": Bounds(), "batch": {"action": action}}


def _trained(program, after_step=lambda model, step: None, steps=9):
    """The same in a loop, which calls `model(**batch)`."""
    model, batch = program["model"], program.pop("batch")
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)

    def loop(model, optimizer):
        for step in range(steps):
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()
            after_step(model, step)

    return program | {"optimizer": optimizer, "loop": loop}


def statistics_of_each_key_in_a_loop():
    return _trained(_of_keys(Keyed()))


def statistics_of_an_agent_that_explores_in_a_loop():
    """They are updated in place, from what the agent has seen so far."""

    def after_step(model, step):
        if step == 4:
            model.state_mean.copy_(torch.tensor([200.0, 90.0, 300.0]))

    return _trained(_of_keys(Keyed((1.0,) * 3, (1.0,) * 3)), after_step)


def still_joint_that_is_guarded_in_a_loop():
    class Guarded(Statistics):
        def normalize(self, action):
            scaled = (action - self.mean) / self.std
            return torch.where(self.std < 1e-4, 0.0, scaled)

    action = torch.randn(32, 3)
    action[:, 1] = 0.5
    return _trained(_program(Guarded([0.0, 0.5, 0.0], [1.0, 1e-8, 1.0]), action))


def a_prediction_that_is_normalised_for_the_loss_in_a_loop():
    return _trained(_of_keys(PredictsRawUnits()))


def method_that_counts_its_calls_in_a_loop():
    class Counts(Statistics):
        calls = 0

        def normalize(self, action):
            self.calls += 1
            return super().normalize(action)

    def after_step(model, step):
        assert model.statistics.calls == step + 1

    return _trained(_program(Counts([1.0] * 3, [2.0] * 3), torch.randn(32, 3) * 2 + 1), after_step)


def images_with_imagenet_statistics_in_a_short_loop():
    return _trained(images_with_imagenet_statistics(), steps=2)

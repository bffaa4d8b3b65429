"""State that a step needs and that is in no checkpoint."""

import torch
from torch import nn


def _arguments(model, optimizer=None, **expect):
    return {
        "model": model,
        "batch": torch.randn(6, 4),
        "loss_fn": lambda model, state: model(state).square().mean(),
        "optimizer": optimizer or torch.optim.AdamW(model.parameters()),
        "expect": {"severity": "error", **expect},
    }


class Annealed(nn.Module):
    """The weight of a loss term depends on a counter that is a plain number."""

    def __init__(self):
        super().__init__()
        self.head, self.calls = nn.Linear(4, 2), 0

    def forward(self, state):
        self.calls += 1
        action = self.head(state)
        return action + action.pow(2) / self.calls


class Policy(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.body, self.part = nn.Linear(4, 4), part

    def forward(self, state):
        return self.part(self.body(state))


class RunningScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()), persistent=False)

    def forward(self, hidden):
        self.scale.mul_(0.9).add_(0.1 * hidden.detach().abs().mean())
        return hidden / self.scale


class SlowWeights(torch.optim.SGD):
    """Lookahead whose slow weights are not in state_dict()."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for slow, p in zip(self.slow, self.param_groups[0]["params"], strict=True):
            slow.lerp_(p, 0.5)
            p.copy_(slow)


def counter_of_an_annealed_term():
    return _arguments(Annealed(), module="", message="`calls` changed in a step")


def running_statistic_that_is_not_persistent():
    return _arguments(Policy(RunningScale()), module="part", message="part.scale")


def optimizer_with_slow_weights():
    model = nn.Linear(4, 2)
    return _arguments(model, SlowWeights(model.parameters()), message="SlowWeights.slow")


class Misnamed(nn.Linear):
    def state_dict(self, *args, **kwargs):
        return {f"model.{name}": value for name, value in super().state_dict(*args, **kwargs).items()}


def state_dict_that_does_not_load():
    return _arguments(Misnamed(4, 2), message="Loading the saved state")


def average_of_the_features_beside_the_state_of_an_lstm():
    """The state belongs to the samples; the average belongs to the model and is lost."""

    class Averaging(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.state, self.average = nn.LSTM(4, 8, batch_first=True), None, torch.zeros(8)

        def forward(self, piece):
            output, state = self.lstm(piece, self.state)
            self.state = tuple(part.detach() for part in state)
            self.average = 0.9 * self.average + 0.1 * output.detach().mean((0, 1))
            return output - self.average

    model = Averaging()
    return {
        "model": model,
        "batch": torch.randn(6, 5, 4),
        "loss_fn": lambda model, piece: model(piece).square().mean(),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-2),
        "expect": {"message": "`average` changed in a step but is in no `state_dict`"},
    }

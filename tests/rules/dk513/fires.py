"""Weights that are kept or averaged as references. The line that a finding must name ends in `# DK513`."""

import copy

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


def _program(loop, **expect):
    model = Policy()
    optimizer = torch.optim.AdamW(model.parameters())
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning", **expect}}


def best_weights_after_the_last_epoch():
    def loop(model, optimizer):
        best, weights = float("inf"), None
        for epoch in range(4):
            _step(model, optimizer)
            loss = abs(epoch - 1)
            if loss < best:
                best, weights = loss, model.state_dict()  # DK513
        model.load_state_dict(weights)

    return _program(loop, message="2 optimizer steps")


def weights_of_a_part_in_a_dict_of_their_own():
    def loop(model, optimizer):
        _step(model, optimizer)
        kept = dict(model.tower.state_dict().items())  # DK513
        for _ in range(2):
            _step(model, optimizer)
        model.tower.load_state_dict(kept)

    return _program(loop, message="`Sequential`")


def put_aside_while_an_average_is_validated():
    def loop(model, optimizer):
        average = {name: value.clone() for name, value in Policy().state_dict().items()}
        for _ in range(2):
            _step(model, optimizer)
            trained = model.state_dict()  # DK513
            model.load_state_dict(average)
            model(torch.randn(4, 3))
            model.load_state_dict(trained)

    return _program(loop, message="1 load")


def average_of_the_model_itself():
    def loop(model, optimizer):
        average = model
        for _ in range(4):
            _step(model, optimizer)
            with torch.no_grad():
                for mine, trained in zip(average.parameters(), model.parameters(), strict=True):
                    mine.lerp_(trained, 0.01)  # DK513

    return _program(
        loop, message="6 tensors were averaged with themselves in each of 2 steps: the average is the trained"
    )


class _Average:
    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).requires_grad_(False), decay

    @torch.no_grad()
    def update(self, model):
        for mine, trained in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.mul_(self.decay).add_(trained, alpha=1 - self.decay)  # DK513


def average_that_is_passed_itself():
    def loop(model, optimizer):
        average = _Average(model, 0.99)
        for _ in range(4):
            _step(model, optimizer)
            average.update(average.model)

    return _program(loop, message="no trained weights enter the average")


def references_in_a_dict():
    """The values of a state dict are the model's own tensors."""

    def loop(model, optimizer):
        shadow = model.state_dict()
        for _ in range(4):
            _step(model, optimizer)
            for name, value in model.named_parameters():
                shadow[name].copy_(0.9 * shadow[name] + 0.1 * value.data)  # DK513

    return _program(loop, message="the average is the trained weights themselves")


def difference_that_is_always_zero():
    def loop(model, optimizer):
        trained = list(model.parameters())
        shadow = [one.detach() for one in trained]
        for _ in range(4):
            _step(model, optimizer)
            with torch.no_grad():
                for mine, one in zip(shadow, trained, strict=True):
                    mine.sub_(0.05 * (mine - one))  # DK513

    return _program(loop, message="the average is the trained weights themselves")


def all_weights_at_once():
    def loop(model, optimizer):
        shadow = [one.detach().clone() for one in model.parameters()]
        for _ in range(4):
            _step(model, optimizer)
            torch._foreach_mul_(shadow, 0.99)
            torch._foreach_add_(shadow, shadow, alpha=0.01)  # DK513

    return _program(loop, message="no trained weights enter the average")


def data_that_is_replaced():
    def loop(model, optimizer):
        target = model
        for _ in range(4):
            _step(model, optimizer)
            for theirs, own in zip(target.parameters(), model.parameters(), strict=True):
                theirs.data = 0.1 * own.data + 0.9 * theirs.data  # DK513

    return _program(loop, message="the average is the trained weights themselves")


def coefficients_of_a_target_that_are_swapped():
    def loop(model, optimizer):
        target, tau = copy.deepcopy(model).requires_grad_(False), 0.005
        for _ in range(12):
            _step(model, optimizer)
            for theirs, own in zip(target.parameters(), model.parameters(), strict=True):
                theirs.data.copy_(tau * theirs.data + (1 - tau) * own.data)  # DK513

    return _program(loop, message="a coefficient of 0.995, in each of 12 steps")


def decay_given_to_the_trained_weights():
    def loop(model, optimizer):
        average = _Average(model, 0.001)
        for _ in range(12):
            _step(model, optimizer)
            average.update(model)

    return _program(loop, message="keeps only 0.001 of itself", fix="0.001 for the trained weights")


def decay_as_the_weight_of_lerp():
    """Of the state dicts, in every second step."""

    def loop(model, optimizer):
        shadow = copy.deepcopy(model.state_dict())
        for number in range(24):
            _step(model, optimizer)
            if number % 2 == 0:
                for name, value in model.state_dict().items():
                    if value.is_floating_point():
                        shadow[name].lerp_(value, 0.99)  # DK513

    return _program(loop, message="in each of 12 steps")


def all_weights_at_once_with_the_decay():
    def loop(model, optimizer):
        shadow = [one.detach().clone() for one in model.parameters()]
        for _ in range(12):
            _step(model, optimizer)
            with torch.no_grad():
                torch._foreach_mul_(shadow, 1 - 0.95)
                torch._foreach_add_(shadow, list(model.parameters()), alpha=0.95)  # DK513

    return _program(loop, message="a coefficient of 0.95, ")

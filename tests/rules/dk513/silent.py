"""Weights that are kept, loads that load something, and averages of two tensors."""

import copy
import io
import math

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


def _program(loop, **more):
    model = Policy()
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "loop": loop, **more}


def copied_before_training_goes_on():
    def loop(model, optimizer):
        _step(model, optimizer)
        best = copy.deepcopy(model.state_dict())
        for _ in range(2):
            _step(model, optimizer)
        model.load_state_dict(best)

    return _program(loop)


def each_tensor_cloned():
    def loop(model, optimizer):
        _step(model, optimizer)
        best = {name: value.clone() for name, value in model.state_dict().items()}
        for _ in range(2):
            _step(model, optimizer)
        model.load_state_dict(best)

    return _program(loop)


def saved_to_a_file():
    def loop(model, optimizer):
        _step(model, optimizer)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        _step(model, optimizer)
        file.seek(0)
        model.load_state_dict(torch.load(file))

    return _program(loop)


def loaded_before_anything_changed():
    """A round trip, as when the entries of a checkpoint are put into the model's own state dict."""

    def loop(model, optimizer):
        for _ in range(2):
            _step(model, optimizer)
            state = model.state_dict()
            state.update({name: value.clone() for name, value in Policy().head.state_dict(prefix="head.").items()})
            model.load_state_dict(state)
            model.load_state_dict(model.state_dict())

    return _program(loop)


def entries_filled_in_place():
    """The own tensors are loaded, after they were written: what is loaded is what was meant."""

    def loop(model, optimizer):
        _step(model, optimizer)
        state = model.state_dict()
        for name, value in Policy().state_dict().items():
            state[name].copy_(value)
        model.load_state_dict(state)
        _step(model, optimizer)

    return _program(loop)


def average_of_two_clients_with_own_normalisation():
    """The entries that stay are references on purpose: the client keeps its own statistics."""

    def loop(model, optimizer):
        other = Policy()
        shared = model.state_dict()
        for _ in range(2):
            _step(model, optimizer)
            for name, value in other.head.state_dict(prefix="head.").items():
                shared[name] = (value + model.get_parameter(name).detach()) / 2
            model.load_state_dict(shared)

    return _program(loop)


def weights_of_another_model():
    """A target network follows: it copies the weights of the moment, and the dict is made only once."""
    target = Policy().requires_grad_(False)

    def loop(model, optimizer):
        weights = model.state_dict()
        for _ in range(3):
            _step(model, optimizer)
            target.load_state_dict(weights)

    return _program(loop)


def nothing_was_loaded():
    def loop(model, optimizer):
        model.state_dict()
        _step(model, optimizer)

    return _program(loop, expect={"not_examined": "No state dict was loaded"})


@torch.no_grad()
def _follow(target, online, rate):
    for theirs, own in zip(target.parameters(), online.parameters(), strict=True):
        theirs.lerp_(own, rate)


def average_of_a_copy():
    def loop(model, optimizer):
        average = copy.deepcopy(model).requires_grad_(False)
        for _ in range(4):
            _step(model, optimizer)
            _follow(average, model, 0.01)

    return _program(loop)


def average_with_a_shared_tower():
    """What is shared is averaged with itself: first by the same loop as the head, then by a call of its own."""

    def loop(model, optimizer):
        target = Policy()
        target.tower = model.tower
        for _ in range(4):
            _step(model, optimizer)
            _follow(target, model, 0.01)
            _follow(target.tower, model.tower, 0.05)

    return _program(loop)


def teacher_that_is_not_updated():
    def loop(model, optimizer):
        teacher = copy.deepcopy(model).requires_grad_(False).eval()
        for _ in range(4):
            optimizer.zero_grad()
            state = torch.randn(4, 3)
            (model(state) - teacher(state)).square().mean().backward()
            optimizer.step()

    return _program(loop, expect={"not_examined": "No state dict was loaded"})


def target_copied_every_second_step():
    def loop(model, optimizer):
        target = copy.deepcopy(model)
        for number in range(6):
            _step(model, optimizer)
            if number % 2 == 0:
                target.load_state_dict(model.state_dict())

    return _program(loop)


def average_of_torch():
    def loop(model, optimizer):
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
        )
        for _ in range(4):
            _step(model, optimizer)
            average.update_parameters(model)

    return _program(loop)


def average_written_in_other_ways():
    def loop(model, optimizer):
        copies = [copy.deepcopy(model).requires_grad_(False) for _ in range(4)]
        for _ in range(4):
            _step(model, optimizer)
            for a, b, c, d, p in zip(*(each.parameters() for each in (*copies, model)), strict=True):
                a.data.copy_(0.9 * a.data + 0.1 * p.data)
                b.mul_(0.9).add_(p.data * 0.1)
                c.sub_(0.1 * (c - p.data))
                d.data = 0.1 * p.data + 0.9 * d.data

    return _program(loop)


def products_that_are_no_average():
    """Weight decay written by hand, noise on the weights, a symmetric matrix, and masters that are the weights."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))

    def loop(model, optimizer):
        average = copy.deepcopy(model)
        for _ in range(4):
            _step(model, optimizer)
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(weight, alpha=-0.001)
                    weight.mul_(0.999).add_(torch.randn_like(weight), alpha=0.001)
                    weight.copy_(weight)
                square = model[2].weight
                square.copy_(0.5 * square + 0.5 * square.T)
                square.lerp_(square.T.clone(), 0.5)
            _follow(average, model, 0.01)

    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loop": loop}


def tied_weights_averaged_twice():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, state):
            return self.second(self.first(state).tanh())

    model = Tied()

    def loop(model, optimizer):
        average = copy.deepcopy(model)
        for _ in range(4):
            _step(model, optimizer)
            mine, trained = (dict(one.named_parameters(remove_duplicate=False)) for one in (average, model))
            for name in mine:
                mine[name].data.lerp_(trained[name].data, 0.1)

    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loop": loop}


# Coefficients of the trained weights above 0.9


def _averaged(rate_of_step, steps=14):
    """An average in which the trained weights have a coefficient for each step."""

    def loop(model, optimizer):
        average = copy.deepcopy(model).requires_grad_(False)
        for number in range(steps):
            _step(model, optimizer)
            _follow(average, model, rate_of_step(number))

    return _program(loop)


def coefficient_of_one():
    return _averaged(lambda _: 1.0)


def coefficient_of_a_half():
    return _averaged(lambda _: 0.5)


def coefficient_of_a_lookahead():
    return _averaged(lambda _: 0.8)


def small_coefficient():
    return _averaged(lambda _: 0.005, 40)


def warmup_of_the_decay_that_is_the_usual_one():
    return _averaged(lambda number: 1 - min(0.999, (1 + number) / (10 + number)))


def warmup_of_the_decay_in_thousands_of_steps():
    return _averaged(lambda number: 1 - 0.9999 * (1 - math.exp(-(number + 1) / 2000)))


def warmup_of_the_decay_that_ends_in_the_first_steps():
    return _averaged(lambda number: 0.95 if number < 20 else 0.01, 30)


def large_coefficient_in_few_steps():
    return _averaged(lambda _: 0.99, 6)


def trained_weights_that_are_drawn_to_an_anchor():
    """The trained weights keep 0.05 of themselves."""

    def loop(model, optimizer):
        anchor = copy.deepcopy(model).requires_grad_(False)
        for _ in range(14):
            _step(model, optimizer)
            _follow(model, anchor, 0.95)

    return _program(loop)


def average_of_an_average():
    def loop(model, optimizer):
        first, second = (copy.deepcopy(model).requires_grad_(False) for _ in range(2))
        for _ in range(14):
            _step(model, optimizer)
            for mine, theirs, own in zip(first.parameters(), second.parameters(), model.parameters(), strict=True):
                mine.data.lerp_(own.data, 0.01)
                theirs.data.copy_(0.05 * theirs.data + 0.95 * mine.data)

    return _program(loop)


def two_networks_with_their_own_coefficients():
    def loop(model, optimizer):
        average, copied = (copy.deepcopy(model).requires_grad_(False) for _ in range(2))
        for _ in range(14):
            _step(model, optimizer)
            _follow(average, model, 0.01)
            _follow(copied, model, 0.99)

    return _program(loop)

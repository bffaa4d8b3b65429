"""Weights that are kept as references and loaded later. The line that a finding must name ends in `# DK513`."""

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

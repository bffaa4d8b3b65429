"""Dropout that eval mode does not turn off."""

import torch
from torch import nn
from torch.nn import functional as F


class Policy(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.body, self.head, self.drop = nn.Linear(4, 8), nn.Linear(8, 2), drop

    def forward(self, state):
        return self.head(self.drop(torch.relu(self.body(state))))


class Forgetful(nn.Module):
    def forward(self, hidden):
        return F.dropout(hidden, 0.1)  # DK506


class Attention(nn.Module):
    def forward(self, hidden):
        query = hidden.view(hidden.shape[0], 1, 2, 4)  # (B, heads, T, D)
        return F.scaled_dot_product_attention(query, query, query, dropout_p=0.2).flatten(1)  # DK506


class ByHand(nn.Module):
    def forward(self, hidden):
        keep = torch.bernoulli(torch.full_like(hidden, 0.9))
        return hidden * (keep / 0.9)  # DK506


class StochasticDepth(nn.Module):
    def forward(self, hidden):
        keep = hidden.new_empty(hidden.shape[0], 1).bernoulli_(0.8)
        return hidden * keep  # DK506


class MonteCarlo(nn.Dropout):
    """Monte Carlo dropout: always on, independent of train() and eval()."""

    def forward(self, hidden):
        return F.dropout(hidden, self.p, True)  # DK506


def _arguments(drop, **expect):
    model = Policy(drop)
    return {
        "model": model,
        "batch": torch.randn(6, 4),
        "loss_fn": lambda model, state: model(state).square().mean(),
        "expect": {"module": "drop", "severity": "error", **expect},
    }


def functional_dropout():
    return _arguments(Forgetful(), message="drops 10% of")


def attention():
    return _arguments(Attention(), message="drops 20% of")


def bernoulli_by_hand():
    return _arguments(ByHand())


def stochastic_depth():
    return _arguments(StochasticDepth(), severity="warning")


def module_that_ignores_its_mode():
    return _arguments(MonteCarlo(0.5), message="drops 50% of")


def teacher_outside_of_the_model_whose_dropout_knows_no_mode():
    class Teacher(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, state):
            return nn.functional.dropout(self.head(state), 0.5)  # DK506

    teacher = Teacher().requires_grad_(False)
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randn(6, 4),
        "loss_fn": lambda model, state: (model(state) - teacher(state)).square().mean(),
        "expect": {"message": "drops 50% of the values"},
    }


def validation_of_a_loop():
    model = Policy(Forgetful())

    def loop(model, optimizer):
        for _ in range(3):
            model.train()
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(6, 4)).square().mean().backward()
                optimizer.step()
            model.eval()
            with torch.inference_mode():
                model(torch.randn(6, 4))

    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters()),
        "loop": loop,
        "expect": {"module": "drop", "severity": "error", "message": "drops 10% of the values"},
    }

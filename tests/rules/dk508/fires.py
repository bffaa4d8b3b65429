"""Models that cannot fit their targets."""

import torch
from torch import nn


def _arguments(model, target):
    return {
        "model": model,
        "batch": {"state": torch.randn(12, 4), "action": target},
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"]).square().mean(),
        "expect": {"severity": "info", "message": "cannot overfit"},
    }


def tanh_before_standardised_actions():
    """The targets go up to 3.6, the output only up to 1."""
    body = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())
    return _arguments(body, 3.6 * torch.randn(12, 2).sign())


class Collapsed(nn.Module):
    """The state is averaged over the batch, so all samples get the same output."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, state):
        return self.head(state.mean(0, keepdim=True)).expand(len(state), 2)


def one_answer_for_all_samples():
    return _arguments(Collapsed(), torch.tensor([[3.0, -3.0], [-3.0, 3.0]]).repeat(6, 1))

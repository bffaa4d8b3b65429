"""Layers between which the activation is missing."""

import torch
from torch import nn
from torch.nn import functional as F


def _regression(model, shape, **expect):
    batch = {"x": torch.randn(*shape)}

    def loss_fn(model, batch):
        return model(batch["x"]).square().mean()  # DK116

    return {"model": model, "batch": batch, "loss_fn": loss_fn, "expect": expect}


def three_layers_in_a_sequential():
    model = nn.Sequential(nn.Linear(6, 32), nn.Linear(32, 16), nn.Linear(16, 2))
    return _regression(model, (8, 6), module="0", severity="warning", message="from 6 to 2 features")


class _Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(6, 32), nn.Linear(32, 32), nn.Linear(32, 2)

    def forward(self, x):
        hidden = self.fc1(x)
        F.relu(hidden)
        hidden = self.fc2(hidden)  # DK116
        return self.fc3(F.gelu(hidden))


def relu_whose_result_is_not_assigned():
    """The result of the ReLU reaches no loss; the layers around it are a pair."""
    return _regression(_Policy(), (8, 6), module="fc1", severity="info", message="`fc1` and `fc2` follow each other")


def blocks_without_an_activation():
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.fc = nn.Identity(), nn.Linear(width, width)

        def forward(self, x):
            return self.norm(self.fc(x))  # DK116

    model = nn.Sequential(*(Block(12) for _ in range(4)), nn.Tanh(), nn.Linear(12, 2))
    return _regression(model, (8, 5, 12), module="0.fc", severity="warning", message="and module `3.fc`")


def convolutions_in_a_row():
    convolutions = [nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)]
    model = nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))
    return _regression(model, (4, 3, 6, 6), module="0", severity="warning", message="from 3 to 8 features")


def three_behind_pooling():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 16), nn.GELU())
            self.head = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 2))

        def forward(self, x):
            return self.head(self.body(x).mean(1))  # DK116

    return _regression(Head(), (4, 5, 6), module="head.0", severity="warning")


def convolutions_with_a_stride():
    convolutions = [nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)]
    model = nn.Sequential(nn.Sequential(*convolutions), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 4, 2))
    return _regression(model, (4, 3, 8, 8), module="0.0", severity="info", message="from 3 to 8 features")

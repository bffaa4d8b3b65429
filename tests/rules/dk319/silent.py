"""Inputs with large numbers that are scaled before the first layer, and layers that do not receive raw numbers."""

import torch
import torch.nn.functional as F
from torch import nn


def _program(model, x, **more):
    return {"model": model, "batch": {"x": x}, "loss_fn": lambda m, b: m(b["x"]).square().mean(), **more}


def _mlp(*first, features=3):
    return nn.Sequential(*first, nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 1))


def standardised_columns():
    return _program(_mlp(), torch.randn(16, 3))


def normalised_by_the_first_layer():
    return _program(_mlp(nn.BatchNorm1d(3)), torch.rand(16, 3) * 1e5, expect={"not_examined": "unchanged"})


def batch_norm_after_the_first_layer():
    model = nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    return _program(model, torch.rand(16, 3) * 1e5)


def time_stamps_divided_in_the_model():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = _mlp()

        def forward(self, x):
            return self.layers(x / 1e9)

    return _program(Model(), 1.7e9 + torch.rand(16, 3), expect={"not_examined": "unchanged"})


def frozen_tower_with_large_features():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = nn.Linear(3, 8).requires_grad_(False)
            self.head = nn.Linear(8, 1)

        def forward(self, x):
            with torch.no_grad():
                features = self.tower(x) * 1e6
            return self.head(features)

    return _program(Model(), torch.randn(16, 3))


def one_hot_and_a_column_of_zeros():
    x = F.one_hot(torch.arange(16) % 5, 6).float() * 100
    return _program(_mlp(features=6), x)


def token_ids_as_numbers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(50_000, 4), nn.Linear(4, 1)

        def forward(self, x):
            return self.head(self.words(x.long()))

    return _program(Model(), torch.randint(20_000, 50_000, (8, 5)).float(), expect={"not_examined": "unchanged"})


def raw_pixels_of_a_flat_image():
    return _program(_mlp(features=64), torch.randint(256, (8, 64)).float())


def two_rows_only():
    return _program(_mlp(), torch.rand(2, 3) * 1e6)

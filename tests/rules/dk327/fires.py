"""Attention whose softmax runs over a batch dimension. The line that a finding must name ends in `# DK327`."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class _Attention(nn.Module):
    def __init__(self, weights, width=16, heads=4):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.weights = heads, weights

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        return self.out((self.weights(scores) @ v).transpose(1, 2).reshape(b, t, d)).mean(1)


def _attending(model, **expect):
    return {
        "model": model,
        "batch": torch.randn(3, 5, 16),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"severity": "warning", **expect},
    }


def softmax_over_the_heads():
    model = _Attention(lambda scores: scores.softmax(dim=1))  # DK327
    return _attending(model, message="dimension 1 of the scores (3, 4, 5, 5)")


def negative_dimension_and_dropout():
    def weights(scores):
        weights = F.softmax(scores.float(), dim=-3)  # DK327
        return F.dropout(weights, 0.1).type_as(scores)

    return _attending(_Attention(weights), message="the weights of the 5 keys do not sum to 1")


def softmax_over_the_samples():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

        def forward(self, x):
            scores = torch.bmm(self.q(x), self.k(x).transpose(1, 2)) / 4
            mask = torch.ones(5, 5).tril() == 0
            weights = torch.softmax(scores.masked_fill(mask, -1e9), 0)  # DK327
            return torch.bmm(weights, self.v(x))

    return _attending(Pooled(), message="dimension 0 of the scores (3, 5, 5)")


def softmax_over_the_heads_of_an_einsum():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).unbind(2)
            scores = torch.einsum("bihd,bjhd->bhij", q, k) * 0.5
            weights = nn.Softmax(dim=1)(scores)  # DK327
            return torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)

    return _attending(Heads())

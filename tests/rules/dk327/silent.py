"""Attention whose softmax runs over the keys, or over another dimension on purpose."""

import torch
from torch import nn
from torch.nn import functional as F

UNREAD = "No attention with a softmax of its own"


class _Attention(nn.Module):
    def __init__(self, weights, merge=None, width=16, heads=4):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.LazyLinear(width)
        self.mix = nn.Conv2d(heads, 1, 1)
        self.heads, self.weights, self.merge = heads, weights, merge

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = self.weights(q @ k.transpose(-2, -1) / 2) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, d) if self.merge is None else self.merge(self, y)).mean(1)


def _attending(model, **expect):
    batch = torch.randn(3, 5, 16)
    model(batch)
    loss_fn = lambda model, batch: model(batch).square().mean()  # noqa: E731
    return {"model": model, "batch": batch, "loss_fn": loss_fn, "expect": expect}


def softmax_over_the_keys():
    return _attending(_Attention(lambda scores: F.dropout(scores.softmax(-1), 0.1)))


def slots_compete_for_the_keys():
    def weights(scores):
        weights = scores.softmax(dim=-2) + 1e-8
        return weights / weights.sum(-1, keepdim=True)

    return _attending(_Attention(weights), not_examined=UNREAD)


def heads_compete_and_are_scaled_for_each_key():
    def weights(scores):
        weights = scores.softmax(dim=1)
        return weights / weights.sum(-1, keepdim=True)

    return _attending(_Attention(weights), not_examined=UNREAD)


def heads_that_are_summed_afterwards():
    return _attending(_Attention(lambda scores: scores.softmax(1), lambda _, y: y.sum(1)))


def heads_that_are_summed_after_a_transpose():
    return _attending(_Attention(lambda scores: scores.softmax(1), lambda _, y: (y.transpose(1, 2) * 2).mean(2)))


def heads_that_a_convolution_mixes():
    return _attending(_Attention(lambda scores: scores.softmax(1), lambda m, y: m.mix(y)[:, 0]))


def weights_over_keys_and_heads():
    return _attending(_Attention(lambda scores: scores.softmax(1) * scores.softmax(-1)), not_examined=UNREAD)


def one_head():
    return _attending(_Attention(lambda scores: scores.softmax(1), heads=1))


def linear_attention():
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x):
            q, k, v = self.qkv(x).view(3, 5, 3, 4, 4).permute(2, 0, 3, 1, 4)
            context = k.softmax(-2).transpose(-2, -1) @ v
            return self.out((q.softmax(-1) @ context).transpose(1, 2).flatten(2))

    return _attending(Linear(), not_examined=UNREAD)


def mixture_of_experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys, self.experts = nn.Parameter(torch.randn(4, 16, 6)), nn.Parameter(torch.randn(4, 6, 16))

        def forward(self, x):  # (E, N, D): each token has a weight for each expert, and one hidden unit of it
            flat = x.flatten(0, 1).expand(4, 15, 16)
            weights = torch.bmm(flat, self.keys).softmax(0)
            return torch.bmm(weights, self.experts).sum(0)

    return _attending(Experts(), not_examined=UNREAD)


def routing_between_capsules():
    class Capsules(nn.Module):
        def forward(self, x):
            votes = x[:, None].expand(3, 4, 5, 16)  # (B, out, in, D)
            logits = votes @ votes.mean(2)[..., None]
            weights = logits.softmax(1)
            return (weights.transpose(2, 3) @ votes)[:, :, 0]

    return _attending(nn.Sequential(nn.Linear(16, 16), Capsules()), not_examined=UNREAD)

"""Healthy forward passes with intended infinities, integers and booleans."""

import torch
from torch import nn


class CausalAttention(nn.Module):
    """An additive mask of -inf above the diagonal, made by two different idioms, and returned among the outputs."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):  # (B, T, 4)
        length = x.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        scores = self.query(x) @ self.key(x).mT + mask
        also = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
        return {
            "out": also.softmax(-1) @ x,
            "scores": also,
            "kept": torch.isfinite(also),
            "length": torch.tensor(length),
        }


class LogMask(nn.Module):
    """The additive mask is the log of a 0/1 mask: a computed -Inf without bad consequences."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, x, valid):
        return ((self.score(x)[..., 0] + valid.log()).softmax(-1)[..., None] * x).sum(1)


class NearestWithInf(nn.Module):
    """A +inf that is assigned so that `min` ignores it, and returned."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 4)

    def forward(self, x):
        distance = torch.cdist(self.embed(x), x).masked_fill(torch.eye(x.shape[0], dtype=torch.bool), float("inf"))
        return distance.min(-1).values.sum(), distance


def causal_attention():
    return {
        "model": CausalAttention(),
        "batch": torch.randn(2, 5, 4),
        "loss_fn": lambda model, batch: model(batch)["out"].square().mean(),
    }


def log_of_a_mask():
    valid = torch.ones(3, 5)
    valid[:, 3:] = 0
    return {
        "model": LogMask(),
        "batch": {"x": torch.randn(3, 5, 4), "valid": valid},
        "loss_fn": lambda model, batch: model(**batch).square().mean(),
    }


def deliberate_infinity():
    return {
        "model": NearestWithInf(),
        "batch": torch.randn(6, 4),
        "loss_fn": lambda model, batch: model(batch)[0],
    }


def masks_in_a_loop():
    model = nn.Sequential(CausalAttention())
    optimizer = torch.optim.AdamW(model.parameters())

    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(2, 5, 4))["out"].square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def infinity_in_a_loop():
    model = NearestWithInf()
    optimizer = torch.optim.AdamW(model.parameters())

    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(6, 4))[0].backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def _loop_over(loss_of):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())

    def loop(model, optimizer):
        label = torch.arange(2).repeat(4)
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(model(torch.randn(8, 4)), label).backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def hardest_negative_in_a_loop():
    """The distances to the same class are infinite, so that `min` takes another one."""

    def loss_of(z, label):
        d = torch.cdist(z, z)
        same = label[:, None] == label[None, :]
        near = d.masked_fill(same, float("inf")).min(1).values
        return (d.masked_fill(~same, float("-inf")).max(1).values - near + 1).relu().mean()

    return _loop_over(loss_of)


def nearest_neighbours_in_a_loop():
    def loss_of(z, label):
        d = torch.cdist(z, z).square()
        d[torch.arange(8), torch.arange(8)] = torch.inf
        d = d / 2
        weights = (-d).softmax(1)
        return -(weights * (label[:, None] == label[None, :])).sum(1).log().mean() + d.topk(2, largest=False)[0].mean()

    return _loop_over(loss_of)


class MaskedHalf(nn.Module):
    """Attention in half precision: the -Inf of the mask is put in place, and float32 computes log(0)."""

    def __init__(self):
        super().__init__()
        self.scores, self.head = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x):
        scores = self.scores(x).half().masked_fill(torch.eye(5)[:3].bool(), float("-inf"))
        weights = scores.softmax(-1).float()
        return {"loss": self.head(weights).square().mean() + 0 * weights.log().exp().sum(), "weights": weights.half()}


def mask_in_half_precision():
    return {"model": MaskedHalf(), "batch": {"x": torch.randn(3, 4)}}

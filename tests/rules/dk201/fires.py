"""Forward passes that make a NaN or an Inf."""

import torch
from torch import nn


class Divides(nn.Module):
    """A joint that never moves: its standard deviation is 0."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, state):  # (B, 3)
        spread = state.std(0)
        scaled = (state - state.mean(0)) / spread  # DK201
        return self.head(scaled)


class AttendsToNothing(nn.Module):
    """Every camera of the first sample is missing, so its row of the mask is all -inf."""

    def __init__(self):
        super().__init__()
        self.value = nn.Linear(4, 4)

    def forward(self, cameras, missing):  # (B, C, 4), (B, C)
        scores = self.value(cameras).sum(-1).masked_fill(missing, float("-inf"))
        weights = scores.softmax(-1)  # DK201
        return (weights[..., None] * cameras).sum(1)


class LogOfSoftmax(nn.Module):
    """log makes a -Inf, which turns into a NaN later. The finding must name log."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 5)

    def forward(self, features):
        log_p = torch.log((self.head(features) * 1e4).softmax(-1))  # DK201
        kept = log_p * 1.0
        return (kept * torch.zeros(5)).sum()


class GatedHalf(nn.Module):
    """Two finite halves whose product exceeds 65504. The output is a dict that also holds a boolean mask."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        gate, up = self.gate(x).half(), self.up(x).half()
        hidden = gate * up  # DK201
        return {"hidden": hidden.float(), "finite": torch.isfinite(hidden)}


def constant_joint():
    state = torch.randn(8, 3)
    state[:, 1] = 0.5
    return {
        "model": Divides(),
        "batch": state,
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"module": "", "message": "returned NaN for finite input"},
    }


def fully_masked_row():
    missing = torch.zeros(4, 3, dtype=torch.bool)
    missing[0] = True
    return {
        "model": AttendsToNothing(),
        "batch": {"cameras": torch.randn(4, 3, 4), "missing": missing},
        "loss_fn": lambda model, batch: model(**batch).square().mean(),
        "expect": {"message": "-Inf"},
    }


def log_of_softmax():
    return {
        "model": LogOfSoftmax(),
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model(batch),
        "expect": {"message": "`log` returned -Inf for finite input"},
    }


def half_precision_product():
    model = GatedHalf()
    return {
        "model": model,
        "batch": torch.full((2, 4), 2000.0),
        "loss_fn": lambda model, batch: model(batch)["hidden"].square().mean(),
        "expect": {"message": "returned Inf for finite input"},
    }


def nan_in_the_batch():
    frames = torch.randn(4, 3)
    frames[2, 1] = float("nan")
    return {
        "model": nn.Sequential(nn.Linear(3, 2)),
        "batch": frames,
        "loss_fn": lambda model, batch: model(batch).mean(),
        "expect": {"message": "The input already contains NaN"},
    }


def nan_weight():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    with torch.no_grad():
        model[1].weight[0, 0] = float("nan")
    return {
        "model": model,
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model(batch).mean(),
        "expect": {"module": "1", "message": "`1.weight` already contains NaN"},
    }


def _train(loss_of, steps=5, broken=3):
    def loop(model, optimizer):
        for step in range(steps):
            optimizer.zero_grad()
            loss_of(model, step == broken).backward()
            optimizer.step()

    return loop


def in_a_loop():
    def loss_of(model, broken):
        state = torch.randn(8, 3)
        if broken:
            state[:, 1] = 0.5
        return model(state).square().mean()

    model = Divides()
    optimizer = torch.optim.AdamW(model.parameters())
    return {"model": model, "optimizer": optimizer, "loop": _train(loss_of), "expect": {"module": ""}}


def in_the_loss_of_a_loop():
    def loss_of(model, broken):
        out = model(torch.randn(4, 3))
        ratio = out / (torch.zeros(4, 2) if broken else torch.ones(4, 2))  # DK201
        return ratio.mean()

    model = nn.Sequential(nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    return {"model": model, "optimizer": optimizer, "loop": _train(loss_of), "expect": {"message": "returned Inf"}}


def infinite_fill_that_stays_in_the_loss():
    def loss_of(model, broken):
        z = model(torch.randn(4, 3))
        d = torch.cdist(z, z + 1).masked_fill(torch.eye(4).bool(), float("inf"))
        return (d if broken else d.min(1).values).mean()  # DK201

    model = nn.Sequential(nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    return {"model": model, "optimizer": optimizer, "loop": _train(loss_of), "expect": {"message": "returned Inf"}}


class SquashedHalf(nn.Module):
    """The product exceeds 65504, and `tanh` makes 1 of the Inf: what every module returns is finite."""

    def __init__(self):
        super().__init__()
        self.gate, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        gate = self.gate(x).half()
        squashed = (gate * gate.abs() * 6e4).tanh()  # DK201
        return {"loss": self.head(squashed.float()).square().mean(), "gate": gate}


def overflow_in_half_precision_that_no_module_returns():
    model = SquashedHalf()
    nn.init.constant_(model.gate.weight, 20.0)
    return {"model": model, "batch": {"x": torch.ones(3, 4)}, "expect": {"message": "returned Inf for finite input"}}

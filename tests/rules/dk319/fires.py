"""Inputs whose columns reach the first layer with their raw scales."""

import torch
import torch.nn.functional as F
from torch import nn


def _regression(m, b):
    return F.mse_loss(m(b["x"]), b["y"])


def _mlp(features=3):
    return nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 1))


def prices_beside_fractions():
    x = torch.rand(16, 3) * torch.tensor([1.0, 1.0, 3e5])
    batch = {"x": x, "y": torch.rand(16, 1)}
    expect = {"module": "0", "severity": "info", "message": "column 2"}
    return {"model": _mlp(), "batch": batch, "loss_fn": _regression, "expect": expect}


def encoder_ticks_with_sgd():
    batch = {"x": torch.randint(20_000, 60_000, (16, 3)).float(), "y": torch.rand(16, 1)}
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    expect = {"module": "0", "severity": "warning"}
    return {"model": model, "batch": batch, "loss_fn": _regression, "optimizer": optimizer, "expect": expect}


def metres_beside_kilometres_in_a_policy():
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.vision = nn.Conv2d(3, 4, 3)
            self.state = nn.GRU(2, 8, batch_first=True)
            self.head = nn.Linear(12, 2)

        def forward(self, image, state):
            seen = self.vision(image).mean((2, 3))
            return self.head(torch.cat([seen, self.state(state)[0][:, -1]], 1))

    batch = {"image": torch.rand(4, 3, 8, 8), "state": torch.randn(4, 5, 2) * torch.tensor([1e-4, 1e3])}
    return {
        "model": Policy(),
        "batch": batch,
        "loss_fn": lambda m, b: m(b["image"], state=b["state"]).square().mean(),
        "expect": {"module": "state", "message": "`state`"},
    }


def found_while_training():
    x, y = torch.rand(16, 3) * 1e5, torch.rand(16, 1)

    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()

    model = _mlp()
    return {"model": model, "optimizer": torch.optim.Adam(model.parameters()), "loop": loop, "expect": {"module": "0"}}

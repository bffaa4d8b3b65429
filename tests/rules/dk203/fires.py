"""Values near the maximum of float16."""

import torch
from torch import nn


class GatedFeedForward(nn.Module):
    """T5's feed-forward: the product of two activations exceeds float16."""

    def __init__(self, gain):
        super().__init__()
        self.wi_0, self.wi_1 = nn.Linear(8, 16, bias=False), nn.Linear(8, 16, bias=False)
        self.wo = nn.Linear(16, 8, bias=False)
        for layer in (self.wi_0, self.wi_1):
            nn.init.constant_(layer.weight, gain)
        nn.init.constant_(self.wo.weight, 1e-3)

    def forward(self, hidden):
        return self.wo(self.wi_0(hidden).relu() * self.wi_1(hidden))


def product_of_a_gated_feed_forward():
    """Each factor is 120; the product, 14400, first shows where it enters wo."""
    return {
        "model": nn.Sequential(GatedFeedForward(15.0)).half(),
        "batch": torch.ones(4, 8, dtype=torch.float16),
        "loss_fn": lambda model, batch: model(batch).float().square().mean(),
        "expect": {
            "module": "0.wo",
            "severity": "warning",
            "message": "The input of module `0.wo` reaches 14,400 in float16",
        },
    }


def residual_stream_that_autocast_converts():
    """In float32 the value is harmless, but the linear layer that follows receives float16."""

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2e4))
            self.head = nn.Linear(8, 2)

        def forward(self, hidden):
            return self.head(hidden * self.scale)

    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.float16):
            return model(batch).float().mean()

    return {
        "model": Residual(),
        "batch": torch.ones(4, 8),
        "loss_fn": loss_fn,
        "expect": {"module": "head", "message": "reaches 20,000, which autocast converts to float16"},
    }


def output_that_grows_in_a_loop():
    model = nn.Linear(4, 4, bias=False)
    nn.init.eye_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def loop(model, optimizer):
        for step in range(6):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                out = model(torch.full((2, 4), 4.0**step * 9))
            out.float().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "float16"}}


def bfloat16_just_before_its_end():
    model = nn.Linear(4, 4, bias=False).bfloat16()
    nn.init.constant_(model.weight, 1e30)
    return {
        "model": model,
        "batch": torch.full((2, 4), 3e7, dtype=torch.bfloat16),
        "loss_fn": lambda model, batch: (model(batch).float() * 1e-30).mean(),
        "expect": {"module": "", "message": "in bfloat16"},
    }


def negative_values_are_as_near():
    model = nn.Linear(4, 4, bias=False).half()
    nn.init.constant_(model.weight, -100.0)
    return {
        "model": nn.Sequential(model),
        "batch": torch.rand(2, 4).half() + 20,
        "loss_fn": lambda model, batch: model(batch).float().mean(),
        "expect": {"module": "0"},
    }

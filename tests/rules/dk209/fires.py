"""Training in float16 without a loss scale."""

import torch
from torch import nn


class HalfPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))

    def forward(self, state):
        return self.body(state)


def _tiny_loss(model, batch):
    """Averaged over steps, dimensions and cameras, with a small weight."""
    return (model(batch).float() - 1e-2).square().mean() * 1e-6


def gradients_that_are_all_zero():
    return {
        "model": HalfPolicy().half(),
        "batch": torch.randn(16, 8).half() * 1e-2,
        "loss_fn": _tiny_loss,
        "expect": {"severity": "warning", "message": "become zero"},
    }


def gradients_without_digits():
    return {
        "model": HalfPolicy().half(),
        "batch": torch.randn(16, 8).half(),
        "loss_fn": lambda model, batch: (model(batch).float() - 1).square().mean() * 1e-3,
        "expect": {"message": "subnormal"},
    }


def autocast_without_a_scaler():
    model = HalfPolicy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                action = model(torch.randn(64, 8))
            ((action.float() - 1).square().mean() * 1e-3).backward()
            optimizer.step()

    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "expect": {"message": "of the non-zero values are subnormal", "module": "body.1"},
    }


def half_weights_in_a_loop():
    model = HalfPolicy().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            _tiny_loss(model, torch.randn(64, 8).half()).backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "float16 gradients are zero"}}

"""Mixed precision that is enabled without an effect."""

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4))


def autocast_around_the_loss_only():
    def loss_fn(model, batch):
        action = model(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):  # DK208
            return (action - 1).square().mean()

    return {
        "model": _policy(),
        "batch": torch.randn(16, 8),
        "loss_fn": loss_fn,
        "expect": {
            "severity": "warning",
            "module": "0",
            "message": "autocast is disabled in module `0`, the largest part",
        },
    }


class Guarded(nn.Module):
    """Autocast is disabled for the whole tower, as after a search for a NaN."""

    def __init__(self):
        super().__init__()
        self.tower, self.head = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 64)), nn.Linear(64, 4)

    def forward(self, state):
        with torch.autocast("cpu", enabled=False):
            features = self.tower(state)
        return self.head(features)


def switched_off_where_the_work_is():
    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):  # DK208
            return model(batch).float().square().mean()

    return {
        "model": Guarded(),
        "batch": torch.randn(16, 8),
        "loss_fn": loss_fn,
        "expect": {"module": "tower.2", "message": "run in float32"},
    }


def in_a_loop():
    model = _policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def loop(model, optimizer):
        for _ in range(2):
            optimizer.zero_grad()
            action = model(torch.randn(16, 8))
            with torch.autocast("cpu", dtype=torch.bfloat16):  # DK208
                loss = (action - 1).square().mean()
            loss.backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def a_scaler_that_skips_every_step():
    """The Inf does not come from the scale, so no smaller scale removes it."""
    model = _policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def loop(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", backoff_factor=0.9)
        for _ in range(64):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (model(torch.randn(16, 8)).float() * torch.tensor(float("inf"))).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "expect": {"severity": "error", "message": "skipped 32 of 32 steps. Its scale is now"},
    }


def a_scaler_that_grows_too_often():
    model = _policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=1)
        for _ in range(128):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (model(torch.randn(16, 8)).float() - 1).square().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "expect": {"severity": "warning", "message": "GradScaler skipped"},
    }


def a_scaler_that_skips_every_step_of_a_short_run():
    model = _policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def loop(model, optimizer):
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(12):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (model(torch.randn(16, 8)).float() * torch.tensor(float("inf"))).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    expect = {"severity": "error", "message": "skipped 12 of 12 steps"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}

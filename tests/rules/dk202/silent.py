"""Healthy steps whose gradients are large, sparse, scaled, or infinite and never used."""

import torch
from torch import nn


class FiniteNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, state):
        return (self.head(state) - 1.0).norm(dim=-1)


def torch_norm_at_zero():
    model = FiniteNorm()
    nn.init.zeros_(model.head.weight)
    nn.init.ones_(model.head.bias)
    return {"model": model, "batch": torch.randn(4, 3), "loss_fn": lambda model, batch: model(batch).mean()}


def norm_overflows_over_finite_values():
    """The L2 norm of gradients near 1e30 is Inf in float32; every value is finite."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-38)

    def loop(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            (model(torch.ones(2, 3)).sum() * 1e30).backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def sparse_embedding():
    model = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Flatten(), nn.Linear(6, 1))
    sparse = torch.optim.SparseAdam(list(model[0].parameters()))
    dense = torch.optim.AdamW(model[2].parameters())

    def loop(model, optimizers):
        for _ in range(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            model(torch.randint(10, (4, 2))).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()

    return {"model": model, "optimizer": [sparse, dense], "loop": loop}


def steps_that_a_scaler_skips():
    """The first scale overflows float16 on purpose. The scaler detects it, skips the step, and halves the scale."""
    model = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=100, backoff_factor=2.0**-10)
        for _ in range(6):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(4, 3)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def steps_that_the_loop_skips():
    model = FiniteNorm()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(model, optimizer):
        for step in range(4):
            optimizer.zero_grad()
            error = model(torch.randn(4, 3)) * (0.0 if step == 1 else 1.0)
            error.sum().sqrt().backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if torch.isfinite(norm):
                optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}

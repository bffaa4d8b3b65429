"""Training loops of every kind that watch() must leave alone, each returning its losses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

Loop = Callable[[nn.Module, list[torch.optim.Optimizer]], list[float]]


class Policy(nn.Module):
    """Everything that draws, keeps statistics or returns a nesting: dropout, BatchNorm, GRU, a dict of a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3))
        self.memory = nn.GRU(8, 8, batch_first=True)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(8, 2))

    def forward(self, state: torch.Tensor) -> dict[str, object]:
        hidden, last = self.memory(self.body(state)[:, None])
        return {"action": self.head(hidden[:, 0]), "memory": (last, torch.ones(2, dtype=torch.bool))}


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool = False) -> None:
        super().__init__()
        self.stem, self.block = nn.Linear(3, 8), nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.GELU())
        self.head = nn.Linear(8, 2)
        self.use_reentrant = use_reentrant

    def forward(self, state: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = checkpoint(self.block, self.stem(state), use_reentrant=self.use_reentrant)
        return {"action": self.head(hidden)}


def loss_of(model: nn.Module) -> torch.Tensor:
    state = torch.randn(4, 3)
    return (model(state)["action"] - state[:, :2]).square().mean()


def plain(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
    losses = []
    for _ in range(6):
        optimizers[0].zero_grad()
        loss = loss_of(model)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers[0].step()
        losses.append(loss.item())
    return losses


def accumulating(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizers[0], 10)
    losses = []
    for micro in range(12):
        loss = loss_of(model) / 3
        loss.backward()
        losses.append(loss.item())
        if micro % 3 == 2:
            optimizers[0].step()
            schedule.step()
            optimizers[0].zero_grad()
    return losses


def several_optimizers(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
    losses = []
    for _ in range(5):
        loss = loss_of(model)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def mixed_precision(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=3, backoff_factor=2.0**-14)
    losses = []
    for _ in range(6):
        optimizers[0].zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizers[0])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizers[0])
        scaler.update()
        losses.append(loss.item())
    return losses


def with_closure(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
    losses: list[float] = []

    def closure() -> torch.Tensor:
        optimizers[0].zero_grad()
        loss = loss_of(model)
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(3):
        optimizers[0].step(closure)  # type: ignore[arg-type]
    return losses


def with_validation(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
    losses = []
    for _ in range(3):
        optimizers[0].zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizers[0].step()
        model.eval()
        with torch.no_grad():
            losses += [loss.item(), loss_of(model).item(), loss_of(model).item()]
        model.train()
    return losses

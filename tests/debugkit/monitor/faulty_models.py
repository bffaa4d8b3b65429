"""Importable models that make a NaN or an Inf, for a second process to build."""

from __future__ import annotations

import torch
from torch import nn


class Distance(nn.Module):
    """Finite output, infinite gradient: the root at 0, behind dropout so that the randomness must be repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, state: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        action = self.head(self.norm(state))
        return ((action - action.detach()).pow(2).sum(-1) * scale).sqrt()


class Quotient(nn.Module):
    """NaN where dropout drops everything: it comes again only if the same numbers are drawn."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.9), nn.Linear(width, 2)

    def forward(self, state: torch.Tensor) -> dict[str, torch.Tensor]:
        kept = self.drop(state.abs() + 1.0)
        return {"action": self.head(kept / kept.sum(-1, keepdim=True))}


def build_quotient() -> tuple[nn.Module, None]:
    return Quotient(), None


def build_wrong() -> str:
    return "no model"

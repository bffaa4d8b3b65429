"""The toy lab's starter: an action head whose loss broadcasts (B,) against (B, 1)."""

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, features: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # (B, F) -> (B,)
        return self.linear(x).squeeze(-1)


def gripper_loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # (B,), (B, 1) -> ()
    return (prediction - target).pow(2).mean()


def train(x: torch.Tensor, target: torch.Tensor, steps: int) -> list[float]:
    head = Head(x.shape[1])
    losses = []
    for _ in range(steps):
        loss = gripper_loss(head(x), target)
        head.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in head.parameters():
                parameter -= 0.1 * parameter.grad
        losses.append(loss.item())
    return losses

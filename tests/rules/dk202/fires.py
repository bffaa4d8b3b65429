"""Finite losses with non-finite gradients."""

import torch
from torch import nn


class Distance(nn.Module):
    """The derivative of the root at 0 is infinite, and the prediction equals the target exactly."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, state):
        action = self.head(state)
        squared = (action - action.detach()).pow(2)
        return squared.sum(-1).sqrt()  # DK202


class BranchNotTaken(nn.Module):
    """`where` selects 0, and 0 times the infinite derivative of the other branch is NaN."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, state):
        height = self.head(state) * torch.zeros(4, 1)
        root = torch.sqrt(height)  # DK202
        return torch.where(height > 0, root, torch.zeros_like(root))


class InTheLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def forward(self, state):
        return self.body(state)


def root_at_zero():
    return {
        "model": Distance(),
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model(batch).mean(),
        "expect": {"module": "", "message": "`SqrtBackward0` returned Inf for a finite gradient"},
    }


def branch_not_taken():
    return {
        "model": BranchNotTaken(),
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model(batch).mean(),
        "expect": {"message": "`SqrtBackward0` returned NaN"},
    }


def in_the_loss_function():
    def loss_fn(model, batch):
        out = model(batch)
        return (out - out.detach()).square().sum(-1).sqrt().mean()  # DK202

    return {
        "model": InTheLoss(),
        "batch": torch.randn(4, 3),
        "loss_fn": loss_fn,
        "expect": {"message": "SqrtBackward0"},
    }


def in_a_loop():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), Distance())
    optimizer = torch.optim.AdamW(model.parameters())

    def loop(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 3)).mean()
            loss.backward()
            optimizer.step()

    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "expect": {"module": "2", "message": "`SqrtBackward0` returned Inf"},
    }


def in_the_loss_of_a_loop_with_accumulation():
    model = InTheLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(model, optimizer):
        for step in range(2):
            for micro in range(3):
                out = model(torch.randn(4, 3))
                error = out - out.detach() if (step, micro) == (1, 1) else out - 1.0
                distance = error.square().sum(-1).sqrt()  # DK202
                (distance.mean() / 3).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "`SqrtBackward0` returned Inf"}}

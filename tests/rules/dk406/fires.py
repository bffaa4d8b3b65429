"""Policies that keep something from the previous episode."""

from collections import deque

import torch
from torch import nn


class Chunked(nn.Module):
    """Plays a chunk of three actions, then runs the network again."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(5, 6)
        self.queue = deque()

    def forward(self, state, action):
        return {"loss": (self.head(state) - action).square().mean()}

    def select_action(self, batch):
        if not self.queue:
            self.queue.extend(self.head(batch["state"]).unflatten(-1, (3, 2)).unbind(1))
        return self.queue.popleft()


def _batch():
    return {"state": torch.randn(4, 5), "action": torch.randn(4, 6)}


def queue_survives_reset():
    class Policy(Chunked):
        def reset(self):
            self.steps = 0

    return {
        "model": Policy(),
        "batch": _batch(),
        "expect": {"severity": "error", "message": "and `reset()`: `queue` keeps its value."},
    }


def ensemble_survives_reset():
    class Policy(Chunked):
        def __init__(self):
            super().__init__()
            self.average = None

        def reset(self):
            self.queue.clear()

        def select_action(self, batch):
            now = super().select_action(batch)
            self.average = now if self.average is None else 0.5 * self.average + 0.5 * now
            return self.average

    return {"model": Policy(), "batch": _batch(), "expect": {"severity": "error"}}


def nothing_can_clear_it():
    return {"model": Chunked(), "batch": _batch(), "expect": {"severity": "warning", "message": "has no `reset()`"}}


def a_single_sample():
    class Policy(Chunked):
        def reset(self):
            pass

    batch = {"state": torch.randn(1, 5), "action": torch.randn(1, 6)}
    return {"model": Policy(), "batch": batch, "expect": {"severity": "error"}}

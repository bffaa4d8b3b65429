"""Modules that hold a tensor which is neither parameter nor buffer."""

import torch
from torch import nn
from torch.utils import backend_registration

HAS_SIMULATED_DEVICE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")
"""Older torch than 2.10 has none: without an accelerator, no step runs on a second device."""


class PositionTable(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table = torch.randn(16, width) * 0.02

    def forward(self, tokens):
        return tokens + self.table[: tokens.shape[1]]  # DK005


class Policy(nn.Module):
    def __init__(self, positions):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.positions = positions
        self.head = nn.Linear(8, 7)

    def forward(self, input_ids, action):
        hidden = self.positions(self.words(input_ids)).mean(1)
        return {"loss": (self.head(hidden) - action).square().mean()}


def _batch():
    return {"input_ids": torch.randint(0, 50, (2, 6)), "action": torch.randn(2, 7)}


def position_table():
    return {
        "model": Policy(PositionTable(8)),
        "batch": _batch(),
        "device": "cuda",
        "expect": {
            "module": "positions",
            "parameter": "positions.table",
            "severity": "error" if HAS_SIMULATED_DEVICE else "info",
            "message": "On a second device the step fails" if HAS_SIMULATED_DEVICE else "is a plain tensor",
        },
    }


class Statistics:
    """A plain object, as many normalisers are."""

    def __init__(self, mean, std):
        self.mean, self.std = mean, std


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.statistics = Statistics(torch.zeros(7), 1.0)
        self.head = nn.Linear(8, 7)

    def forward(self, state, action):
        target = (action - self.statistics.mean) / self.statistics.std  # DK005
        return {"loss": (self.head(state) - target).square().mean()}


def statistics_in_a_plain_object():
    return {
        "model": Normalised(),
        "batch": {"state": torch.randn(2, 8), "action": torch.randn(2, 7)},
        "expect": {"module": "", "parameter": "statistics.mean", "severity": "info"},
    }


class MovesItself(nn.Module):
    """Runs on every device, but the checkpoint does not contain the table."""

    def __init__(self):
        super().__init__()
        self.tables = [torch.randn(16, 8)]

    def forward(self, tokens):
        return tokens + self.tables[0][: tokens.shape[1]].to(tokens)


def only_the_checkpoint_lacks_it():
    return {
        "model": Policy(MovesItself()),
        "batch": _batch(),
        "expect": {"module": "positions", "parameter": "positions.tables.0", "severity": "info"},
    }

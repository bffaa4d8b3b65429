"""TODO(author): programs with the fault. The line that a finding must name ends in `# DK319`."""

import torch
from torch import nn


def the_fault():
    return {
        "model": nn.Linear(4, 1),
        "batch": torch.ones(2, 4),
        "loss_fn": lambda model, batch: 1e9 + model(batch).sum(),
        "expect": {"severity": "warning"},
    }

"""TODO(author): the healthy programs that look most like the fault."""

import torch
from torch import nn


def nearest_healthy_program():
    return {
        "model": nn.Linear(4, 1),
        "batch": torch.ones(2, 4),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
    }

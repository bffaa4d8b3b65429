"""Views that merge and split in order, and sizes that are equal by chance."""

import torch
import torch.nn.functional as F
from torch import nn


def _program(model, x):
    return {"model": model, "batch": {"x": x}, "loss_fn": lambda model, batch: model(batch["x"]).square().mean()}


def placeholder():
    return _program(nn.Linear(3, 2), torch.randn(4, 3))

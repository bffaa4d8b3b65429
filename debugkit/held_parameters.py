"""The parameters that optimizers hold."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.optim import Optimizer


def held_parameters(*optimizers: Optimizer) -> Iterator[nn.Parameter]:
    """The parameters of all groups of all `optimizers`, in order. One that is held twice comes twice."""
    return (parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"])

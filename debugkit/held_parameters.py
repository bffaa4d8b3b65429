"""The parameters that optimizers hold."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from torch import nn
from torch.optim import Optimizer


def held_parameters(*optimizers: Optimizer) -> Iterator[nn.Parameter]:
    """The parameters of all groups of all `optimizers`, in order. One that is held twice comes twice."""
    return (parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"])


def smallest_trained(
    optimizer: Optimizer, count: int, *, fewest: int = 0, most: int = sys.maxsize
) -> list[nn.Parameter]:
    """The `count` smallest trainable leaves of an optimizer with `fewest` to `most` elements. A loop that resets or
    discards gradients does so for all parameters, so a few show it."""
    parameters = {id(p): p for p in held_parameters(optimizer)}
    leaves = [p for p in parameters.values() if p.requires_grad and p.is_leaf and fewest <= p.numel() <= most]
    return sorted(leaves, key=lambda p: p.numel())[:count]

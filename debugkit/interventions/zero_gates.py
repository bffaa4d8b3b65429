"""Small temporary values in zero-initialised layers and gates, which otherwise hide everything before them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

_SMALL = 1e-2


@contextlib.contextmanager
def open_gates(model: nn.Module) -> Iterator[None]:
    """Give parameters that are entirely zero small random values; restore them on exit."""
    closed = [parameter for parameter in model.parameters() if parameter.is_floating_point() and not parameter.any()]
    originals = [parameter.data for parameter in closed]
    generator = torch.Generator().manual_seed(0)
    try:
        for parameter in closed:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data = (_SMALL * noise).to(parameter.device, parameter.dtype)
        yield
    finally:
        for parameter, original in zip(closed, originals, strict=True):
            parameter.data = original
